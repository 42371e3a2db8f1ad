#include "comm/rendezvous/file_board.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>

#include <gradwire/error.hpp>

namespace gradwire {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr auto eager = 4ms;  // between two looks while something is expected
constexpr auto calm = 50ms;  // otherwise, and between two looks at the locks
constexpr auto eager_after_publish = 500ms;
constexpr std::string_view entry_prefix = "entry-";
constexpr std::string_view rank_prefix = "rank-";

// Keys as file names: letters, digits and '-' stay, other characters become %XX.
std::string escape(std::string const& key) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string name;
  for (char const c : key) {
    auto const byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '-') {
      name += c;
    } else {
      name += {'%', digits[byte >> 4], digits[byte & 15u]};
    }
  }
  return name;
}

std::string unescape(std::string_view name) {
  std::string key;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] != '%' || i + 2 >= name.size()) {
      key += name[i];
      continue;
    }
    unsigned value = 0;
    std::from_chars(name.data() + i + 1, name.data() + i + 3, value, 16);
    key += static_cast<char>(value);
    i += 2;
  }
  return key;
}

[[noreturn]] void fail(std::string const& what, fs::path const& where) {
  throw error{errc::communicator, with_errno("the rendezvous folder: " + what + " " + where.string())};
}

std::string read_file(fs::path const& path) {
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

// A file under a name of our own, holding `text`; `locked` for as long as the descriptor lives.
descriptor write_file(fs::path const& path, std::string const& text, bool locked) {
  descriptor file{open(path.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600)};
  if (!file.valid()) fail("cannot create", path);
  if (locked && flock(file.get(), LOCK_EX | LOCK_NB) != 0) fail("cannot lock (are locks allowed there?)", path);
  for (std::size_t done = 0; done < text.size();) {
    auto const wrote = write(file.get(), text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) fail("cannot write (is the disk full?)", path);
    done += static_cast<std::size_t>(wrote);
  }
  return file;
}

enum class holder { absent, alive, dead };

holder holder_of(fs::path const& path) {
  descriptor const file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (!file.valid()) return holder::absent;
  return flock(file.get(), LOCK_SH | LOCK_NB) == 0 ? holder::dead : holder::alive;
}

// Ranks on one machine have this in common.
std::string machine() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return std::string{name.data()} + " " + read_file("/proc/sys/kernel/random/boot_id");
}

}  // namespace

file_board::file_board(fs::path folder, std::size_t rank, std::size_t size, clock::time_point deadline)
    : folder_{std::move(folder)}, rank_{rank}, size_{size}, busy_until_{clock::now() + eager_after_publish} {
  std::error_code failed;
  fs::create_directories(folder_, failed);
  if (failed) {
    throw error{errc::communicator,
                "the rendezvous folder " + folder_.string() + " cannot be made: " + failed.message()};
  }
  if (rank_ == 0) {
    open_run();
  } else {
    find_run(deadline);
  }
  take_place();
  publish("machine/" + std::to_string(rank_), machine());
  watcher_ = std::thread{[this] { run(); }};
}

file_board::~file_board() {
  {
    std::scoped_lock const lock{mutex_};
    stopping_ = true;
    wake_.notify_all();
  }
  watcher_.join();
  clean_up();
}

void file_board::open_run() {
  auto const pointer = folder_ / "run";
  if (holder_of(pointer) == holder::alive) {
    throw error{errc::communicator, "the rendezvous folder " + folder_.string() +
                                        " is in use by another run: give each run a folder of its own"};
  }
  std::error_code ignored;
  if (auto const text = read_file(pointer); text.starts_with("run-")) {  // what a crashed run left
    fs::remove_all(folder_ / text.substr(0, text.find(' ')), ignored);
  }
  auto const name = "run-" + std::to_string(getpid()) + "-" +
                    std::to_string(std::chrono::system_clock::now().time_since_epoch().count());
  run_ = folder_ / name;
  // The last rank of an earlier run may be removing the folder at this moment.
  for (int attempt = 0; mkdir(run_.c_str(), 0700) != 0; ++attempt) {
    if (errno != ENOENT || attempt == 100) fail("cannot create", run_);
    fs::create_directories(folder_, ignored);
  }
  // Locked and complete before it has its name.
  auto const temporary = run_ / "pointer";
  run_lock_ = write_file(temporary, name + " " + std::to_string(size_), true);
  if (rename(temporary.c_str(), pointer.c_str()) != 0) fail("cannot rename", temporary);
}

void file_board::find_run(clock::time_point deadline) {
  auto const pointer = folder_ / "run";
  auto const begin = clock::now();
  while (holder_of(pointer) != holder::alive) {
    if (clock::now() >= deadline) {
      auto const waited = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - begin);
      throw error{errc::timeout, "rank 0 did not come to file://" + folder_.string() + " within " +
                                     std::to_string(waited.count()) +
                                     " ms: is it running, and does it see the same folder?"};
    }
    std::this_thread::sleep_for(eager);
  }
  auto const text = read_file(pointer);
  auto const space = text.find(' ');
  auto const size = text.substr(space + 1);
  if (size != std::to_string(size_)) {
    throw error{errc::communicator, "rank " + std::to_string(rank_) + " of " + std::to_string(size_) +
                                        " came to a rendezvous of " + size + " ranks in " + folder_.string() +
                                        ": start all ranks with the same world size"};
  }
  run_ = folder_ / text.substr(0, space);
}

void file_board::take_place() {
  auto const place = run_ / (std::string{rank_prefix} + std::to_string(rank_));
  auto const temporary = run_ / ("place-" + std::to_string(getpid()) + "-" + std::to_string(rank_));
  rank_lock_ = write_file(temporary, "", true);
  if (link(temporary.c_str(), place.c_str()) != 0) {
    if (errno != EEXIST) fail("cannot link", place);
    unlink(temporary.c_str());
    throw error{errc::communicator, "rank " + std::to_string(rank_) + " has joined " + folder_.string() +
                                        " already: start each rank once, and give each run a folder of its own"};
  }
  unlink(temporary.c_str());
}

void file_board::publish(std::string const& key, std::string const& value) {
  std::string suffix;
  {
    std::scoped_lock const lock{mutex_};
    suffix = std::to_string(rank_) + "-" + std::to_string(++written_);
    busy_until_ = std::max(busy_until_, clock::now() + eager_after_publish);
    wake_.notify_all();
  }
  auto const temporary = run_ / ("new-" + suffix);
  auto const entry = run_ / (std::string{entry_prefix} + escape(key));
  static_cast<void>(write_file(temporary, value, false));
  int const linked = link(temporary.c_str(), entry.c_str());
  int const why = errno;
  unlink(temporary.c_str());
  errno = why;
  if (linked != 0 && errno != EEXIST) fail("cannot link", entry);
}

std::string file_board::local_address(clock::time_point deadline) {
  bool one_machine = true;
  for (std::size_t r = 0; r < size_; ++r) {
    one_machine = wait_for("machine/" + std::to_string(r), deadline) == machine() && one_machine;
  }
  if (one_machine) return "127.0.0.1";
  auto address = default_route_address();
  if (!address.empty()) return address;
  throw error{errc::communicator,
              "this machine has no default route, so its address towards the other ranks is not known: name the "
              "network interface (GRADWIRE_INTERFACE), or use a tcp:// rendezvous"};
}

void file_board::run() {
  for (;;) {
    look();
    bool const waited_for = someone_waits();
    std::unique_lock lock{mutex_};
    auto const pause = waited_for || clock::now() < busy_until_ ? eager : calm;
    if (wake_.wait_for(lock, pause, [&] { return stopping_; })) return;
  }
}

void file_board::look() {
  std::error_code failed;
  std::vector<std::string> names;
  for (auto at = fs::directory_iterator{run_, failed}; !failed && at != fs::directory_iterator{};
       at.increment(failed)) {
    names.push_back(at->path().filename().string());
  }
  if (failed) return close("the rendezvous folder " + run_.string() + " is gone: " + failed.message());
  for (auto const& name : names) {
    if (name.starts_with(entry_prefix) && known_.insert(name).second) {
      learn(unescape(std::string_view{name}.substr(entry_prefix.size())), read_file(run_ / name));
    }
  }
  if (clock::now() < look_at_locks_) return;
  look_at_locks_ = clock::now() + calm;
  // Losses last: what a rank wrote before it died is known before its death is.
  for (auto const& name : names) {
    if (!name.starts_with(rank_prefix)) continue;
    if (holder_of(run_ / name) == holder::dead) learn("lost/" + name.substr(rank_prefix.size()), "");
  }
}

void file_board::clean_up() {
  std::error_code ignored;
  auto const own = run_ / (std::string{rank_prefix} + std::to_string(rank_));
  fs::remove(own, ignored);
  for (std::size_t r = 0; r < size_; ++r) {
    if (holder_of(run_ / (std::string{rank_prefix} + std::to_string(r))) == holder::alive) return;
  }
  // The last one out. Somebody else may be doing the same.
  auto const pointer = folder_ / "run";
  if (read_file(pointer).starts_with(run_.filename().string() + " ")) fs::remove(pointer, ignored);
  fs::remove_all(run_, ignored);
  fs::remove(folder_, ignored);  // only when empty
}

}  // namespace gradwire
