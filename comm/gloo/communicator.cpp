#include <gradwire/gloo.hpp>

#include <gloo/allreduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "comm/arithmetic.hpp"
#include "comm/gloo/device.hpp"
#include "comm/gloo/sigpipe.hpp"
#include "comm/gloo/verdict.hpp"
#include "comm/host_communicator.hpp"
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
  std::shared_ptr<board> shared;
  std::shared_ptr<gloo::transport::Device> device;
};

enum class operation_code : std::uint64_t { all_gather = 1, all_to_all, broadcast, barrier, point_to_point };

// Both ends of a message compute its slot: operation, running number and size. So messages of ranks that disagree never
// meet; Gloo would end the process over a message larger than its buffer. Gloo's own collectives use top bytes 1 to 8.
std::uint64_t slot_of(operation_code code, std::uint64_t number, std::size_t bytes) {
  constexpr std::uint64_t own = 0x80;
  return (own | static_cast<std::uint64_t>(code)) << 56 | (number & 0xfffu) << 44 | (bytes & 0xfff'ffff'ffffu);
}

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

struct message {
  std::size_t peer = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::uint64_t slot = 0;
};

std::string to_text(dtype type, reduce_op op, std::size_t count) {
  constexpr std::array names{"sum", "max", "min"};
  return std::string{names.at(static_cast<std::size_t>(op))} + " of " + std::to_string(count) + " " +
         std::string{to_string(type)};
}

class gloo_communicator final : public host_communicator {
 public:
  gloo_communicator(node place, std::string group, std::vector<std::size_t> members, std::size_t rank,
                    milliseconds timeout)
      : host_communicator{rank, members.size(), timeout},
        node_{std::move(place)},
        group_{std::move(group)},
        members_{std::move(members)},
        sent_to_(size(), 0),
        received_from_(size(), 0) {
    if (size() == 1) return;
    verdict_.emplace(node_.shared, group_, members_, rank, timeout);
    connect(clock::now() + timeout);
    watch_.emplace(*node_.shared, [this] {
      if (verdict_->spoiled()) spoil();
    });
  }

  ~gloo_communicator() override {
    watch_.reset();
    if (verdict_) verdict_->report(ending::left, "");
  }
  gloo_communicator(gloo_communicator const&) = delete;
  gloo_communicator& operator=(gloo_communicator const&) = delete;
  gloo_communicator(gloo_communicator&&) = delete;
  gloo_communicator& operator=(gloo_communicator&&) = delete;

  [[nodiscard]] std::string_view transport() const noexcept override { return "gloo"; }
  [[nodiscard]] comm_caps caps() const noexcept override { return {}; }

  void abort() noexcept override {
    aborted_ = true;
    if (!verdict_) return;
    verdict_->report(ending::aborted, "");
    spoil();
  }

 private:
  void connect(clock::time_point deadline) {
    without_sigpipe const quiet;
    try {
      for (std::size_t way = 0; way < ways_.size(); ++way) {
        auto const made =
            std::make_shared<gloo::rendezvous::Context>(static_cast<int>(rank()), static_cast<int>(size()));
        // While connecting, Gloo waits for five times the context's timeout.
        made->setTimeout(std::max(milliseconds{1}, timeout() / 5));
        gloo_store store{*node_.shared, group_ + "/" + std::to_string(way), deadline};
        made->connectFullMesh(store, node_.device);
        made->setTimeout(timeout());
        ways_[way] = made;
      }
      // A rank that is through could leave before its peers are, and take their connections with it.
      gloo_store through{*node_.shared, group_ + "/through", deadline};
      through.set(std::to_string(rank()), {});
      for (std::size_t r = 0; r < size(); ++r) through.wait({std::to_string(r)});
    } catch (error const& why) {
      throw error{why.code(), "connecting the ranks: " + std::string{why.what()}};
    } catch (std::exception const& why) {
      throw verdict_->find(clock::now() >= deadline ? ending::timed_out : ending::broken, "the start of the group",
                           without_origin(why.what()));
    }
  }

  // What goes to a higher rank has connections of its own. With one for both ways, Gloo's thread, woken by what comes
  // in, finds the connection locked by the thread that is writing to it, and polls until that is done: half of its time
  // where both share a core. bench/lab, no shaping, quant(bits=4)+via(two_shot) on 100 MB: 75 ms instead of 120 (AMD
  // EPYC, a core a rank, 2026-11-30). And the news that this rank can receive would stand behind what it sends.
  gloo::Context& way(std::size_t from, std::size_t to) { return *ways_[from < to ? 1 : 0]; }

  // Ends every wait of these contexts, on this rank and, as their connections close, on its peers: what Gloo does when
  // a wait runs out. Any thread may call it.
  void spoil() noexcept {
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

  // Runs an operation over Gloo; whatever it throws becomes the group's error.
  template <class Body>
  void attempt(std::string const& operation, Body body) {
    if (aborted_) throw error{errc::communicator, "rank " + std::to_string(rank()) + " aborted the group"};
    if (size() == 1) return;
    without_sigpipe const quiet;
    auto const deadline = clock::now() + timeout();
    try {
      body(deadline);
    } catch (std::exception const& why) {
      auto const how = clock::now() >= deadline ? ending::timed_out : ending::broken;
      spoil();
      throw verdict_->find(how, operation, without_origin(why.what()));
    }
  }

  static milliseconds left_until(clock::time_point deadline) {
    // Gloo takes 0 for no limit and -1 for its default.
    return std::max(milliseconds{1}, std::chrono::ceil<milliseconds>(deadline - clock::now()));
  }

  // All messages are under way at once; a peer further round the ring later, so that not all ranks send to one.
  void exchange(std::vector<message> const& sends, std::vector<message> const& receives, clock::time_point deadline) {
    std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> incoming;
    std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> outgoing;
    for (auto const& each : receives) {
      incoming.push_back(way(each.peer, rank()).createUnboundBuffer(each.data, each.bytes));
      incoming.back()->recv(static_cast<int>(each.peer), each.slot);
    }
    for (auto const& each : sends) {
      outgoing.push_back(way(rank(), each.peer).createUnboundBuffer(each.data, each.bytes));
      outgoing.back()->send(static_cast<int>(each.peer), each.slot);
    }
    for (auto const& buffer : incoming) buffer->waitRecv(left_until(deadline));
    for (auto const& buffer : outgoing) buffer->waitSend(left_until(deadline));
  }

  // Gloo's buffers take mutable pointers also for sending.
  static std::byte* mutable_data(std::span<std::byte const> bytes) { return const_cast<std::byte*>(bytes.data()); }

  // Every other rank, beginning `1` after this one.
  [[nodiscard]] std::vector<std::size_t> others() const {
    std::vector<std::size_t> result;
    for (std::size_t step = 1; step < size(); ++step) result.push_back((rank() + step) % size());
    return result;
  }

  void do_all_gather(std::span<std::byte const> in, std::span<std::byte> out, sizes bytes) override {
    auto const number = ++sequence_;
    std::vector<std::size_t> offsets(size());
    std::exclusive_scan(bytes.begin(), bytes.end(), offsets.begin(), std::size_t{0});
    auto* const own = out.data() + offsets[rank()];
    if (!in.empty() && own != in.data()) std::memcpy(own, in.data(), in.size());
    attempt("all_gather #" + std::to_string(number) + " of " + std::to_string(out.size()) + " bytes",
            [&](clock::time_point deadline) {
              std::vector<message> sends;
              std::vector<message> receives;
              for (auto const peer : others()) {
                auto const slot = [&](std::size_t size) { return slot_of(operation_code::all_gather, number, size); };
                if (!in.empty()) sends.push_back({peer, mutable_data(in), in.size(), slot(in.size())});
                if (bytes[peer] != 0) {
                  receives.push_back({peer, out.data() + offsets[peer], bytes[peer], slot(bytes[peer])});
                }
              }
              exchange(sends, receives, deadline);
            });
  }

  void do_all_to_all(std::span<std::byte const> in, sizes send_bytes, std::span<std::byte> out,
                     sizes recv_bytes) override {
    auto const number = ++sequence_;
    std::vector<std::size_t> from(size());
    std::vector<std::size_t> to(size());
    std::exclusive_scan(send_bytes.begin(), send_bytes.end(), from.begin(), std::size_t{0});
    std::exclusive_scan(recv_bytes.begin(), recv_bytes.end(), to.begin(), std::size_t{0});
    if (send_bytes[rank()] != 0) {
      std::memcpy(out.data() + to[rank()], in.data() + from[rank()], send_bytes[rank()]);
    }
    attempt("all_to_all #" + std::to_string(number), [&](clock::time_point deadline) {
      std::vector<message> sends;
      std::vector<message> receives;
      auto const slot = [&](std::size_t size) { return slot_of(operation_code::all_to_all, number, size); };
      for (auto const peer : others()) {
        auto const outgoing = send_bytes[peer];
        auto const incoming = recv_bytes[peer];
        if (outgoing != 0) sends.push_back({peer, mutable_data(in) + from[peer], outgoing, slot(outgoing)});
        if (incoming != 0) receives.push_back({peer, out.data() + to[peer], incoming, slot(incoming)});
      }
      exchange(sends, receives, deadline);
    });
  }

  // Gloo's ring: 2(n−1)/n of the bytes, f16 and bf16 added in f32 and rounded at each of its hops.
  void do_all_reduce(elements inout, std::size_t count, reduce_op op) override {
    auto const number = ++sequence_;
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
      gloo::allreduce(options);
    });
  }

  void do_broadcast(std::span<std::byte> inout, std::size_t root) override {
    auto const number = ++sequence_;
    if (inout.empty()) return;
    auto const slot = slot_of(operation_code::broadcast, number, inout.size());
    attempt("broadcast #" + std::to_string(number) + " of " + std::to_string(inout.size()) + " bytes from rank " +
                std::to_string(root),
            [&](clock::time_point deadline) {
              if (rank() != root) return exchange({}, {{root, inout.data(), inout.size(), slot}}, deadline);
              std::vector<message> sends;
              for (auto const peer : others()) sends.push_back({peer, inout.data(), inout.size(), slot});
              exchange(sends, {}, deadline);
            });
  }

  // Dissemination: in round k each rank hears from the one 2^k before it (Hensgen, Finkel and Manber 1988).
  void do_barrier() override {
    auto const number = ++sequence_;
    attempt("barrier #" + std::to_string(number), [&](clock::time_point deadline) {
      std::byte out{};
      std::byte in{};
      for (std::size_t distance = 1; distance < size(); distance *= 2) {
        auto const to = (rank() + distance) % size();
        auto const from = (rank() + size() - distance) % size();
        auto const slot = slot_of(operation_code::barrier, number, distance);
        exchange({{to, &out, 1, slot}}, {{from, &in, 1, slot}}, deadline);
      }
    });
  }

  void do_send(std::span<std::byte const> in, std::size_t peer) override {
    auto const number = ++sent_to_[peer];
    if (in.empty()) return;
    attempt("send of " + std::to_string(in.size()) + " bytes to rank " + std::to_string(peer),
            [&](clock::time_point deadline) {
              auto const slot = slot_of(operation_code::point_to_point, number, in.size());
              exchange({{peer, mutable_data(in), in.size(), slot}}, {}, deadline);
            });
  }

  void do_recv(std::span<std::byte> out, std::size_t peer) override {
    auto const number = ++received_from_[peer];
    if (out.empty()) return;
    attempt("recv of " + std::to_string(out.size()) + " bytes from rank " + std::to_string(peer),
            [&](clock::time_point deadline) {
              auto const slot = slot_of(operation_code::point_to_point, number, out.size());
              exchange({}, {{peer, out.data(), out.size(), slot}}, deadline);
            });
  }

  std::unique_ptr<communicator> do_split(std::uint32_t color, std::uint32_t key) override {
    using choice = std::array<std::uint32_t, 2>;
    std::vector<choice> choices(size());
    choices[rank()] = {color, key};
    auto const all = std::as_writable_bytes(std::span{choices});
    std::vector<std::size_t> const bytes(size(), sizeof(choice));
    do_all_gather(all.subspan(rank() * sizeof(choice), sizeof(choice)), all, bytes);
    std::vector<std::pair<std::uint32_t, std::size_t>> order;  // (key, rank here)
    for (std::size_t r = 0; r < size(); ++r) {
      if (choices[r][0] == color) order.emplace_back(choices[r][1], r);
    }
    std::sort(order.begin(), order.end());
    std::vector<std::size_t> members;
    std::size_t place = 0;
    for (auto const& [their_key, r] : order) {
      if (r == rank()) place = members.size();
      members.push_back(members_[r]);
    }
    auto const name = group_ + "." + std::to_string(++splits_) + "c" + std::to_string(color);
    return std::make_unique<gloo_communicator>(node_, name, std::move(members), place, timeout());
  }

  node node_;
  std::string group_;
  std::vector<std::size_t> members_;
  std::array<std::shared_ptr<gloo::rendezvous::Context>, 2> ways_;  // see way()
  std::optional<verdict> verdict_;
  std::atomic<bool> aborted_ = false;
  std::mutex spoil_mutex_;
  bool spoiled_ = false;
  std::uint64_t sequence_ = 0;
  std::uint64_t splits_ = 0;
  std::vector<std::uint64_t> sent_to_;
  std::vector<std::uint64_t> received_from_;
  // Last: its destructor waits until the board no longer calls in here.
  std::optional<board::subscription> watch_;
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
