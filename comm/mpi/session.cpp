#include "comm/mpi/session.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <list>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <gradwire/error.hpp>

namespace gradwire::mpi {
namespace {

using std::chrono::milliseconds;

bool wait_for(MPI_Request& request, clock::time_point deadline) {
  for (;;) {
    int done = 0;
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) return true;
    if (clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds{100});
  }
}

// Not MPI_Comm_dup, which would wait for ever for a rank that does not come.
MPI_Comm duplicate_of(MPI_Comm parent, clock::time_point deadline) {
  returned_errors const of_parent{parent};
  auto* const made = new MPI_Comm{MPI_COMM_NULL};  // kept when the time is up: MPI may still write it
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Comm_idup(parent, made, &request), "MPI_Comm_idup");
  if (!wait_for(request, deadline)) {
    throw error{errc::timeout,
                "not all ranks came to the start of the group in time; MPI does not tell which: look at "
                "the output of each"};
  }
  std::unique_ptr<MPI_Comm> const owned{made};
  MPI_Comm_set_errhandler(*made, MPI_ERRORS_RETURN);
  return *made;
}

// What this process owes MPI; finalises what we initialised when the process exits.
class process_state {
 public:
  static process_state& get() {
    static process_state the_state;
    return the_state;
  }
  process_state(process_state const&) = delete;
  process_state& operator=(process_state const&) = delete;

  void enter(milliseconds patience) {
    std::scoped_lock const lock{mutex_};
    patience_ = std::max(patience_, patience);
    begin(patience);
    ++groups_;
  }
  void leave() noexcept { --groups_; }
  void note_failure() noexcept { failed_ = true; }

 private:
  process_state() = default;
  ~process_state() = default;

  void end() {
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (all_ == MPI_COMM_NULL || finalised != 0 || groups_ != 0) return;
    // MPI_Finalize waits for all ranks, for ever, and so does this: another may have work to do after its last group.
    // But after a failure one may never come; then it is left to the launcher, which sees this process end.
    auto const deadline = failed_ ? clock::now() + std::min(patience_, milliseconds{2000}) : clock::time_point::max();
    MPI_Request met = MPI_REQUEST_NULL;
    try {
      check(MPI_Ibarrier(all_, &met), "MPI_Ibarrier");
      if (wait_for(met, deadline)) MPI_Finalize();
    } catch (std::exception const&) {  // a peer is gone
    }
  }

  void begin(milliseconds patience) {
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (finalised != 0) {
      throw error{
          errc::unsupported,
          "MPI was finalised before in this process and cannot be initialised again: call MPI_Finalize after the "
          "last gradwire group is gone"};
    }
    int initialised = 0;
    MPI_Initialized(&initialised);
    if (initialised == 0) {
      int level = 0;
      if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS) {
        throw error{errc::communicator, "MPI_Init_thread failed: start this program with mpirun or srun"};
      }
      // After MPI's own, which MPI_Init_thread may have entered: so before them when the process exits.
      std::atexit([] { get().end(); });
      all_ = duplicate_of(MPI_COMM_WORLD, clock::now() + patience);
    }
    int level = 0;
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_MULTIPLE) {
      throw error{errc::unsupported,
                  "MPI was initialised with thread level " + std::to_string(level) +
                      " and gradwire calls it from several threads: initialise it by MPI_Init_thread with "
                      "MPI_THREAD_MULTIPLE (" +
                      std::to_string(MPI_THREAD_MULTIPLE) +
                      "), or leave it to gradwire; an MPI that gives no more must be built with thread support"};
    }
  }

  std::mutex mutex_;
  MPI_Comm all_ = MPI_COMM_NULL;  // where we initialised MPI
  milliseconds patience_{0};
  std::atomic<int> groups_ = 0;
  std::atomic<bool> failed_ = false;
};

// Never destroyed: its letters may be under way until MPI ends.
struct outbox {
  struct letter {
    MPI_Request request;
    std::vector<std::byte> bytes;
  };
  std::mutex mutex;
  std::list<letter> letters;

  static outbox& get() {
    static auto* const the_outbox = new outbox;
    return *the_outbox;
  }
};

}  // namespace

void check(int code, char const* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw std::runtime_error{std::string{call} + ": " + std::string{text.data(), static_cast<std::size_t>(length)}};
}

returned_errors::returned_errors(MPI_Comm comm) : comm_{comm} {
  check(MPI_Comm_get_errhandler(comm_, &before_), "MPI_Comm_get_errhandler");
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
}

returned_errors::~returned_errors() {
  MPI_Comm_set_errhandler(comm_, before_);
  MPI_Errhandler_free(&before_);
}

session::session(milliseconds patience) { process_state::get().enter(patience); }
session::~session() { process_state::get().leave(); }
void session::note_failure() noexcept { process_state::get().note_failure(); }

owned_comm owned_comm::duplicate(MPI_Comm parent, clock::time_point deadline) {
  try {
    return owned_comm{duplicate_of(parent, deadline)};
  } catch (std::runtime_error const&) {
    session::note_failure();
    throw;
  }
}

owned_comm::owned_comm(MPI_Comm made) : comm_{made} {}

owned_comm::~owned_comm() {
  int finalised = 0;
  MPI_Finalized(&finalised);
  if (comm_ != MPI_COMM_NULL && !kept_ && finalised == 0) MPI_Comm_free(&comm_);
}

owned_comm::owned_comm(owned_comm&& other) noexcept
    : comm_{std::exchange(other.comm_, MPI_COMM_NULL)}, kept_{other.kept_.load()} {}

std::size_t owned_comm::rank() const {
  int value = 0;
  check(MPI_Comm_rank(comm_, &value), "MPI_Comm_rank");
  return static_cast<std::size_t>(value);
}

std::size_t owned_comm::size() const {
  int value = 0;
  check(MPI_Comm_size(comm_, &value), "MPI_Comm_size");
  return static_cast<std::size_t>(value);
}

int most_tag() {
  int* most = nullptr;
  int found = 0;
  check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&most), &found), "MPI_Comm_get_attr");
  constexpr int guaranteed = 32767;
  return found != 0 ? *most : guaranteed;
}

void keep_until_done(MPI_Request request, std::vector<std::byte> bytes) {
  auto& box = outbox::get();
  std::scoped_lock const lock{box.mutex};
  std::erase_if(box.letters, [](outbox::letter& each) {
    int done = 0;
    return MPI_Test(&each.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
  });
  box.letters.push_back({request, std::move(bytes)});  // the bytes stay where they are
}

}  // namespace gradwire::mpi
