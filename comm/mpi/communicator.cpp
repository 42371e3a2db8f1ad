#include <gradwire/mpi.hpp>

#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <gradwire/buffer.hpp>

#include "comm/arithmetic.hpp"
#include "comm/message_communicator.hpp"
#include "comm/mpi/board.hpp"
#include "comm/mpi/session.hpp"
#include "comm/mpi/transfer.hpp"

namespace gradwire {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// How a wait passes its time. MPI works only when it is called: at first, and while data moves, all the time, giving
// the core to whoever wants it; later now and then, so that a rank that waits for a slow one costs little.
class pacing {
 public:
  using clock = mpi::clock;
  explicit pacing(std::size_t moving_bytes) { restart(moving_bytes); }
  void restart(std::size_t moving_bytes) {
    constexpr std::size_t slow_link = 500;  // bytes a microsecond
    spin_until_ = clock::now() + milliseconds{1} + microseconds{moving_bytes / slow_link};
    nap_ = microseconds{50};
  }
  //! True when this was no short wait.
  bool pass(clock::time_point now) {
    if (now < spin_until_) {
      std::this_thread::yield();
      return false;
    }
    std::this_thread::sleep_for(nap_);
    nap_ = std::min(nap_ * 2, microseconds{500});
    return true;
  }

 private:
  clock::time_point spin_until_;
  microseconds nap_{};
};

// What a process shares between a group and those split from it. The session goes last: it may end MPI.
struct place {
  std::shared_ptr<mpi::session> session;
  std::shared_ptr<board> news;
};

class mpi_communicator final : public message_communicator {
 public:
  mpi_communicator(place where, mpi::owned_comm comm, std::string group, std::vector<std::size_t> members,
                   std::size_t rank, milliseconds timeout)
      : message_communicator{where.news, std::move(group), std::move(members), rank, timeout},
        place_{std::move(where)},
        comm_{std::move(comm)} {
    watch_board();
  }
  ~mpi_communicator() override {
    leave_group();
    if (failed_) comm_.keep();
  }
  mpi_communicator(mpi_communicator const&) = delete;
  mpi_communicator& operator=(mpi_communicator const&) = delete;
  mpi_communicator(mpi_communicator&&) = delete;
  mpi_communicator& operator=(mpi_communicator&&) = delete;

  [[nodiscard]] std::string_view transport() const noexcept override { return "mpi"; }
  [[nodiscard]] comm_caps caps() const noexcept override { return {.in_order_sum = true}; }

 private:
  void spoil() noexcept override {
    failed_ = true;
    mpi::session::note_failure();
  }

  // Both ends of a message compute its tag. In collectives another size is found by the receiver, at once, and the
  // sender hears of it. Of a letter nobody else hears: one of another size must stay where it is.
  static int tag_of(message const& one) {
    static_assert((static_cast<int>(operation_code::all_reduce) << 11 | 0x7ff) <= mpi::transfer::most_tag);
    auto const number = one.number + (one.code == operation_code::point_to_point ? one.bytes * 31 : 0);
    return static_cast<int>(one.code) << 11 | static_cast<int>(number & 0x7ffu);
  }

  void exchange(std::span<message const> sends, std::span<message const> receives,
                clock::time_point deadline) override {
    mpi::transfer all{comm_.get()};
    try {
      for (auto const& each : receives) all.receive(each.peer, tag_of(each), {each.data, each.bytes});
      for (auto const& each : sends) all.send(each.peer, tag_of(each), {each.data, each.bytes});
      finish(all, deadline);
    } catch (std::exception const&) {
      // Shorter than others wait for this rank's report.
      all.abandon(clock::now() + milliseconds{200});
      throw;
    }
  }

  void finish(mpi::transfer& all, clock::time_point deadline) {
    pacing pace{0};
    std::optional<clock::time_point> left_since;
    while (!all.done()) {
      if (all.advance()) {
        pace.restart(all.moving_bytes());
        continue;
      }
      auto const now = clock::now();
      if (failed_) throw std::runtime_error{"another rank failed"};
      if (now >= deadline) throw std::runtime_error{"the time was up"};
      if (!pace.pass(now)) continue;
      // The news that a rank left may overtake what it sent before.
      constexpr milliseconds on_its_way{200};
      if (!someone_left(all.waits_for())) continue;
      if (!left_since) left_since = now;
      if (now - *left_since > on_its_way) throw std::runtime_error{"a rank left"};
    }
  }

  [[nodiscard]] bool someone_left(std::vector<std::size_t> const& peers) const {
    return std::any_of(peers.begin(), peers.end(), [&](std::size_t peer) { return judge().has_left(peer); });
  }

  // Each rank adds its part of everything, in rank order, and sends the sum to all: 2(n−1)/n of the bytes. MPI's own
  // all-reduce cannot add f16 and bf16, and what MPI began it cannot be made to leave.
  void do_all_reduce(elements inout, std::size_t count, reduce_op op) override {
    auto const number = next_number();
    if (count == 0) return;
    attempt("all_reduce #" + std::to_string(number) + ", " + to_text(inout.type, op, count),
            [&](clock::time_point deadline) {
              // In turns: the parts stay in the cache until they are added.
              auto const width = size_of(inout.type);
              constexpr std::size_t turn_bytes = std::size_t{4} << 20;
              constexpr std::size_t least_part_bytes = std::size_t{64} << 10;
              auto const turn = std::max(turn_bytes, size() * least_part_bytes) / width;
              auto* const data = static_cast<std::byte*>(inout.data);
              for (std::size_t first = 0; first < count; first += turn) {
                reduce_turn({data + first * width, inout.type}, std::min(turn, count - first), op, number, deadline);
              }
            });
  }

  void reduce_turn(elements inout, std::size_t count, reduce_op op, std::uint64_t number, clock::time_point deadline) {
    auto const width = size_of(inout.type);
    auto bytes = even_parts(count, size());
    auto const own_count = bytes[rank()];
    for (auto& entry : bytes) entry *= width;
    auto const own_bytes = bytes[rank()];
    std::span const all{static_cast<std::byte*>(inout.data), count * width};
    auto const own = all.subspan(
        std::accumulate(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(rank()), std::size_t{0}), own_bytes);
    if (parts_.size() < own_bytes * size()) parts_ = buffer{own_bytes * size()};
    auto const parts = parts_.bytes().first(own_bytes * size());
    exchange_parts(all, bytes, parts, std::vector<std::size_t>(size(), own_bytes), operation_code::all_reduce, number,
                   deadline);
    if (own_bytes != 0) {
      std::memcpy(parts.data() + rank() * own_bytes, own.data(), own_bytes);
      std::memcpy(own.data(), parts.data(), own_bytes);
      for (std::size_t r = 1; r < size(); ++r) {
        combine(own.data(), own.data(), parts.data() + r * own_bytes, own_count, inout.type, op);
      }
    }
    gather_parts(own, all, bytes, operation_code::all_gather, number, deadline);
  }

  std::unique_ptr<communicator> do_split(std::uint32_t color, std::uint32_t key) override {
    auto mine = agree_on_part(color, key);
    // MPI's colors are of another type; it waits for ranks that have all come here.
    auto const first = *std::min_element(mine.ranks.begin(), mine.ranks.end());
    MPI_Comm made = MPI_COMM_NULL;
    mpi::check(MPI_Comm_split(comm_.get(), static_cast<int>(first), static_cast<int>(mine.place), &made),
               "MPI_Comm_split");
    return std::make_unique<mpi_communicator>(place_, mpi::owned_comm{made}, std::move(mine.group),
                                              std::move(mine.members), mine.place, timeout());
  }

  place place_;
  mpi::owned_comm comm_;
  std::atomic<bool> failed_ = false;
  buffer parts_{0};  // of one turn
};

MPI_Comm parent_of(mpi_options const& options) {
  if (!options.over) return MPI_COMM_WORLD;
  MPI_Comm const parent = MPI_Comm_f2c(static_cast<MPI_Fint>(*options.over));
  int between_groups = 1;
  if (parent == MPI_COMM_NULL || MPI_Comm_test_inter(parent, &between_groups) != MPI_SUCCESS || between_groups != 0) {
    throw error{errc::invalid_argument,
                "mpi: " + std::to_string(*options.over) +
                    " names no intracommunicator of this process: give MPI_Comm_c2f() of one, or nothing for "
                    "MPI_COMM_WORLD"};
  }
  return parent;
}

}  // namespace

std::unique_ptr<communicator> make_mpi(mpi_options const& options) {
  if (options.timeout.count() <= 0) {
    throw error{errc::invalid_argument,
                "mpi: a timeout of " + std::to_string(options.timeout.count()) + " ms was given: use 1 ms or more"};
  }
  place where{.session = std::make_shared<mpi::session>(options.timeout), .news = nullptr};
  auto const parent = parent_of(options);
  try {
    auto const deadline = mpi::clock::now() + options.timeout;
    auto messages = mpi::owned_comm::duplicate(parent, deadline);
    auto const rank = messages.rank();
    std::vector<std::size_t> members(messages.size());
    std::iota(members.begin(), members.end(), std::size_t{0});
    if (members.size() > 1) {
      where.news = std::make_shared<mpi::mpi_board>(mpi::owned_comm::duplicate(parent, deadline));
    }
    return std::make_unique<mpi_communicator>(std::move(where), std::move(messages), "0", std::move(members), rank,
                                              options.timeout);
  } catch (error const&) {
    mpi::session::note_failure();
    throw;
  } catch (std::runtime_error const& why) {
    throw error{errc::communicator, "mpi: the start of the group: " + std::string{why.what()}};
  }
}

bool has_mpi() noexcept { return true; }

}  // namespace gradwire
