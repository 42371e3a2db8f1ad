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
#include "comm/mpi/group_numbers.hpp"
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
    constexpr microseconds most{5000};      // a rank may wait for a piece whose sender has not come
    spin_until_ = clock::now() + milliseconds{1} + std::min(most, microseconds{moving_bytes / slow_link});
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

// What a process shares between a group and those split from it, which have numbers in the tags of one communicator:
// MPI_Comm_split would wait for ever for a rank that failed on its way there. Ranks there are members on the board. The
// session goes last: it may end MPI.
struct place {
  std::shared_ptr<mpi::session> session;
  std::shared_ptr<mpi::owned_comm> comm;
  std::shared_ptr<mpi::group_numbers> numbers;
  std::shared_ptr<board> news;
};

class mpi_communicator final : public message_communicator {
 public:
  mpi_communicator(place where, mpi::group_numbers::claim number, std::string group, std::vector<std::size_t> members,
                   std::size_t rank, milliseconds timeout)
      : message_communicator{where.news, std::move(group), std::move(members), rank, timeout},
        place_{std::move(where)},
        number_{std::move(number)} {
    watch_board();
  }
  ~mpi_communicator() override {
    leave_group();
    if (!failed_) return;
    place_.comm->keep();
    number_.keep();
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

  // Both ends of a message compute its tag. In collectives one end finds another size, at once, and the other hears of
  // it, but where only the receiver takes the message for a small one: then both wait for the timeout. Of a letter
  // nobody else hears: one of another size must stay where it is, and its tag holds a hash of the size.
  [[nodiscard]] int tag_of(message const& one) const {
    constexpr std::uint64_t odd = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio: near sizes get tags far apart
    static_assert((static_cast<int>(operation_code::all_reduce) << 11 | 0x7ff) < mpi::transfer::ready_tag);
    auto const number = one.number + (one.code == operation_code::point_to_point ? one.bytes * odd >> 53 : 0);
    return static_cast<int>(number_.value()) << mpi::group_numbers::shift | static_cast<int>(one.code) << 11 |
           static_cast<int>(number & 0x7ffu);
  }

  void exchange(std::span<message const> sends, std::span<message const> receives,
                clock::time_point deadline) override {
    mpi::transfer all{place_.comm->get()};
    try {
      for (auto const& each : receives) all.receive(members()[each.peer], tag_of(each), {each.data, each.bytes});
      for (auto const& each : sends) all.send(members()[each.peer], tag_of(each), {each.data, each.bytes});
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
    return std::any_of(peers.begin(), peers.end(), [&](std::size_t peer) {
      return judge().has_left(
          static_cast<std::size_t>(std::find(members().begin(), members().end(), peer) - members().begin()));
    });
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
    return std::make_unique<mpi_communicator>(place_, agree_on_number(), std::move(mine.group), std::move(mine.members),
                                              mine.place, timeout());
  }

  // One that is free on all ranks here. Parts share it: they have no ranks in common. Several rounds are rare: another
  // thread of a rank splits another group then.
  mpi::group_numbers::claim agree_on_number() {
    for (std::uint32_t least = 0;;) {
      auto const number = most_of(place_.numbers->first_free(least));
      if (number > place_.numbers->most()) {
        throw error{errc::unsupported, "mpi: more than " + std::to_string(place_.numbers->most()) +
                                           " groups split from one and alive at once, or failed: this MPI has tags for "
                                           "no more; destroy groups, or begin with another make_mpi()"};
      }
      auto claimed = mpi::group_numbers::claim::take(place_.numbers, number);
      if (most_of(claimed ? 0 : 1) == 0) return std::move(*claimed);
      least = number + 1;
    }
  }

  // The largest of what the ranks offer.
  std::uint32_t most_of(std::uint32_t offer) {
    std::vector<std::uint32_t> offers(size());
    offers[rank()] = offer;
    auto const all = std::as_writable_bytes(std::span{offers});
    std::vector<std::size_t> const bytes(size(), sizeof offer);
    do_all_gather(all.subspan(rank() * sizeof offer, sizeof offer), all, bytes);
    return *std::max_element(offers.begin(), offers.end());
  }

  place place_;
  mpi::group_numbers::claim number_;
  std::atomic<bool> failed_ = false;
  buffer parts_{0};  // of one turn
};

MPI_Comm parent_of(mpi_options const& options) {
  if (!options.over) return MPI_COMM_WORLD;
  // MPI tells these, by default the end of the job, what is wrong with a number that names no communicator.
  mpi::returned_errors const of_world{MPI_COMM_WORLD};
  mpi::returned_errors const of_self{MPI_COMM_SELF};
  MPI_Comm const parent = MPI_Comm_f2c(static_cast<MPI_Fint>(*options.over));
  int between_groups = 1;
  // MPI_Comm{}: Open MPI's answer to a number it does not know.
  if (parent == MPI_Comm{} || parent == MPI_COMM_NULL || MPI_Comm_test_inter(parent, &between_groups) != MPI_SUCCESS ||
      between_groups != 0) {
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
  try {
    place where;
    where.session = std::make_shared<mpi::session>(options.timeout);
    auto const parent = parent_of(options);
    auto const deadline = mpi::clock::now() + options.timeout;
    where.comm = std::make_shared<mpi::owned_comm>(mpi::owned_comm::duplicate(parent, deadline));
    where.numbers = std::make_shared<mpi::group_numbers>(mpi::most_tag());
    auto const rank = where.comm->rank();
    std::vector<std::size_t> members(where.comm->size());
    std::iota(members.begin(), members.end(), std::size_t{0});
    if (members.size() > 1) {
      where.news = std::make_shared<mpi::mpi_board>(mpi::owned_comm::duplicate(parent, deadline));
    }
    auto first = mpi::group_numbers::claim::take(where.numbers, 0);
    return std::make_unique<mpi_communicator>(std::move(where), std::move(*first), "0", std::move(members), rank,
                                              options.timeout);
  } catch (error const&) {
    throw;
  } catch (std::runtime_error const& why) {
    throw error{errc::communicator, "mpi: the start of the group: " + std::string{why.what()}};
  }
}

bool has_mpi() noexcept { return true; }

}  // namespace gradwire
