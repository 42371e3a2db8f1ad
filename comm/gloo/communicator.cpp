#include <gradwire/gloo.hpp>

#include <gloo/allreduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "comm/arithmetic.hpp"
#include "comm/gloo/device.hpp"
#include "comm/gloo/sigpipe.hpp"
#include "comm/message_communicator.hpp"
#include "comm/rendezvous/board.hpp"

namespace gradwire {
namespace {

using clock = board::clock;
using std::chrono::milliseconds;

// Gloo's view of the board: one group's corner of it.
class gloo_store final : public gloo::rendezvous::Store {
 public:
  gloo_store(board& shared, std::string const& group, clock::time_point deadline)
      : board_{shared}, prefix_{"mesh/" + group + "/"}, deadline_{deadline} {}

  void set(std::string const& key, std::vector<char> const& data) override {
    board_.publish(prefix_ + key, {data.begin(), data.end()});
  }
  std::vector<char> get(std::string const& key) override {
    auto const value = find(key);
    return {value.begin(), value.end()};
  }
  void wait(std::vector<std::string> const& keys) override {
    for (auto const& key : keys) static_cast<void>(find(key));
  }
  void wait(std::vector<std::string> const& keys, milliseconds const&) override { wait(keys); }

 private:
  // Keys are ranks, Gloo's and ours.
  std::string find(std::string const& rank) {
    try {
      return board_.wait_for(prefix_ + rank, deadline_);
    } catch (error const& why) {
      if (why.code() != errc::timeout) throw;
      throw error{errc::timeout,
                  "rank " + rank + " of this group did not connect in time: it is stopped, or very slow to start"};
    }
  }

  board& board_;
  std::string prefix_;
  clock::time_point deadline_;
};

// What a process shares between a group and those split from it: the board, and Gloo's thread.
struct node {
  std::shared_ptr<meeting> shared;
  std::shared_ptr<gloo::transport::Device> device;
};

// Gloo's collectives take a 32-bit tag instead of a slot.
std::uint32_t tag_of(std::uint64_t number, std::size_t count, dtype type, reduce_op op) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a over words
  for (std::uint64_t const word : {number, std::uint64_t{count}, std::uint64_t{static_cast<std::uint8_t>(type)},
                                   std::uint64_t{static_cast<std::uint8_t>(op)}}) {
    hash = (hash ^ word) * 0x100000001b3u;
    hash ^= hash >> 29;
  }
  return static_cast<std::uint32_t>(hash ^ (hash >> 32));
}

class gloo_communicator final : public message_communicator {
 public:
  gloo_communicator(node place, std::string group, std::vector<std::size_t> members, std::size_t rank,
                    milliseconds timeout)
      : message_communicator{place.shared, std::move(group), std::move(members), rank, timeout},
        node_{std::move(place)} {
    if (size() > 1) connect(clock::now() + timeout);
    watch_board();
  }

  ~gloo_communicator() override { leave_group(); }
  gloo_communicator(gloo_communicator const&) = delete;
  gloo_communicator& operator=(gloo_communicator const&) = delete;
  gloo_communicator(gloo_communicator&&) = delete;
  gloo_communicator& operator=(gloo_communicator&&) = delete;

  [[nodiscard]] std::string_view transport() const noexcept override { return "gloo"; }
  [[nodiscard]] comm_caps caps() const noexcept override { return {}; }

 private:
  void connect(clock::time_point deadline) {
    without_sigpipe const quiet;
    try {
      for (std::size_t way = 0; way < ways_.size(); ++way) {
        auto const made =
            std::make_shared<gloo::rendezvous::Context>(static_cast<int>(rank()), static_cast<int>(size()));
        // While connecting, Gloo waits for five times the context's timeout.
        made->setTimeout(std::max(milliseconds{1}, timeout() / 5));
        gloo_store store{*node_.shared, group() + "/" + std::to_string(way), deadline};
        made->connectFullMesh(store, node_.device);
        made->setTimeout(timeout());
        ways_[way] = made;
      }
      // A rank that is through could leave before its peers are, and take their connections with it.
      gloo_store through{*node_.shared, group() + "/through", deadline};
      through.set(std::to_string(rank()), {});
      for (std::size_t r = 0; r < size(); ++r) through.wait({std::to_string(r)});
    } catch (error const& why) {
      throw error{why.code(), "connecting the ranks: " + std::string{why.what()}};
    } catch (std::exception const& why) {
      throw judge().find(clock::now() >= deadline ? ending::timed_out : ending::broken, "the start of the group",
                         without_origin(why.what()));
    }
  }

  // What goes to a higher rank has connections of its own. With one for both ways, Gloo's thread, woken by what comes
  // in, finds the connection locked by the thread that is writing to it, and polls until that is done: half of its time
  // where both share a core. bench/lab, no shaping, quant(bits=4)+via(two_shot) on 100 MB: 75 ms instead of 120 (AMD
  // EPYC, a core a rank, 2026-11-30). And the news that this rank can receive would stand behind what it sends.
  gloo::Context& way(std::size_t from, std::size_t to) { return *ways_[from < to ? 1 : 0]; }

  // Ends every wait of these contexts, on this rank and, as their connections close, on its peers: what Gloo does when
  // a wait runs out.
  void spoil() noexcept override {
    without_sigpipe const quiet;
    std::scoped_lock const lock{spoil_mutex_};
    if (std::exchange(spoiled_, true)) return;
    for (auto const& each : ways_) {
      try {
        std::byte nothing{};
        each->createUnboundBuffer(&nothing, 1)->waitRecv(milliseconds{1});
      } catch (std::exception const&) {  // the wait that runs out
      }
    }
  }

  // Whatever Gloo throws, in words for people.
  template <class Body>
  static void over_gloo(Body body) {
    without_sigpipe const quiet;
    try {
      body();
    } catch (std::exception const& why) {
      throw std::runtime_error{without_origin(why.what())};
    }
  }

  static milliseconds left_until(clock::time_point deadline) {
    // Gloo takes 0 for no limit and -1 for its default.
    return std::max(milliseconds{1}, std::chrono::ceil<milliseconds>(deadline - clock::now()));
  }

  // Both ends of a message compute its slot. The size is in it: Gloo would end the process over a message larger than
  // its buffer. Gloo's own collectives use top bytes 1 to 8.
  static std::uint64_t slot_of(message const& one) {
    constexpr std::uint64_t own = 0x80;
    return (own | static_cast<std::uint64_t>(one.code)) << 56 | (one.number & 0xfffu) << 44 |
           (one.bytes & 0xfff'ffff'ffffu);
  }

  void exchange(std::span<message const> sends, std::span<message const> receives,
                clock::time_point deadline) override {
    over_gloo([&] {
      std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> incoming;
      std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> outgoing;
      for (auto const& each : receives) {
        incoming.push_back(way(each.peer, rank()).createUnboundBuffer(each.data, each.bytes));
        incoming.back()->recv(static_cast<int>(each.peer), slot_of(each));
      }
      for (auto const& each : sends) {
        outgoing.push_back(way(rank(), each.peer).createUnboundBuffer(each.data, each.bytes));
        outgoing.back()->send(static_cast<int>(each.peer), slot_of(each));
      }
      for (auto const& buffer : incoming) buffer->waitRecv(left_until(deadline));
      for (auto const& buffer : outgoing) buffer->waitSend(left_until(deadline));
    });
  }

  // Gloo's ring: 2(n−1)/n of the bytes, f16 and bf16 added in f32 and rounded at each of its hops.
  void do_all_reduce(elements inout, std::size_t count, reduce_op op) override {
    auto const number = next_number();
    if (count == 0) return;
    auto const name = "all_reduce #" + std::to_string(number) + ", " + to_text(inout.type, op, count);
    attempt(name, [&](clock::time_point deadline) {
      gloo::AllreduceOptions options{ways_[0]};
      options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
      if (inout.type == dtype::f32) {
        options.setOutput(static_cast<float*>(inout.data), count);
      } else {
        options.setOutput(static_cast<std::uint16_t*>(inout.data), count);
      }
      options.setReduceFunction([type = inout.type, op](void* to, void const* a, void const* b, std::size_t many) {
        combine(to, a, b, many, type, op);
      });
      options.setTag(tag_of(number, count, inout.type, op));
      options.setTimeout(left_until(deadline));
      over_gloo([&] { gloo::allreduce(options); });
    });
  }

  std::unique_ptr<communicator> do_split(std::uint32_t color, std::uint32_t key) override {
    auto mine = agree_on_part(color, key);
    return std::make_unique<gloo_communicator>(node_, std::move(mine.group), std::move(mine.members), mine.place,
                                               timeout());
  }

  node node_;
  std::array<std::shared_ptr<gloo::rendezvous::Context>, 2> ways_;  // see way()
  std::mutex spoil_mutex_;
  bool spoiled_ = false;
};

}  // namespace

std::unique_ptr<communicator> make_gloo(gloo_options const& options) {
  if (options.size == 0 || options.rank >= options.size) {
    throw error{errc::invalid_argument, "gloo: rank " + std::to_string(options.rank) + " of " +
                                            std::to_string(options.size) + " ranks: ranks go from 0 to size - 1"};
  }
  if (options.timeout.count() <= 0) {
    throw error{errc::invalid_argument,
                "gloo: a timeout of " + std::to_string(options.timeout.count()) + " ms was given: use 1 ms or more"};
  }
  std::vector<std::size_t> members(options.size);
  std::iota(members.begin(), members.end(), std::size_t{0});
  node place;
  if (options.size > 1) {
    if (!options.interface.empty()) check_interface(options.interface);
    auto const deadline = clock::now() + options.timeout;
    place.shared = meet(options.rendezvous, options.rank, options.size, options.timeout);
    place.device = bind_device(options.interface.empty() ? place.shared->local_address(deadline) : options.interface);
  }
  return std::make_unique<gloo_communicator>(std::move(place), "0", std::move(members), options.rank, options.timeout);
}

bool has_gloo() noexcept { return true; }

}  // namespace gradwire
