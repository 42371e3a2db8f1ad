#include <gradwire/inproc.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "comm/arithmetic.hpp"
#include "comm/host_communicator.hpp"
#include "comm/inproc/group.hpp"

namespace gradwire {
namespace {

using inproc::call;
using inproc::group;

void copy_bytes(std::byte* to, std::byte const* from, std::size_t bytes) {
  // all_gather's input may be its own part of the output.
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}

class inproc_communicator final : public host_communicator {
 public:
  inproc_communicator(std::shared_ptr<group> shared, std::size_t rank)
      : host_communicator{rank, shared->size(), shared->timeout()}, group_{std::move(shared)} {}
  ~inproc_communicator() override { group_->leave(rank()); }
  inproc_communicator(inproc_communicator const&) = delete;
  inproc_communicator& operator=(inproc_communicator const&) = delete;
  inproc_communicator(inproc_communicator&&) = delete;
  inproc_communicator& operator=(inproc_communicator&&) = delete;

  [[nodiscard]] std::string_view transport() const noexcept override { return "inproc"; }
  [[nodiscard]] comm_caps caps() const noexcept override { return {.in_order_sum = true}; }

  void abort() noexcept override { fail("rank " + std::to_string(rank()) + " aborted the group"); }
  void fail(std::string const& why) noexcept { group_->fail(error{errc::communicator, why}); }

  //! This rank's thread ends; peers that wait for it must not wait for the timeout.
  void leave_if_idle() noexcept {
    if (pending() == 0) group_->leave(rank());
  }

 private:
  void do_all_gather(std::span<std::byte const> in, std::span<std::byte> out, sizes bytes) override {
    group_->enter(rank(), {.operation = "all_gather", .signature = {bytes.begin(), bytes.end()}, .in = in.data()});
    std::size_t offset = 0;
    for (std::size_t r = 0; r < size(); ++r) {
      copy_bytes(out.data() + offset, group_->at(r).in, bytes[r]);
      offset += bytes[r];
    }
    group_->meet(rank());
  }

  void do_all_to_all(std::span<std::byte const> in, sizes send_bytes, std::span<std::byte> out,
                     sizes recv_bytes) override {
    group_->enter(rank(), {.operation = "all_to_all",
                           .in = in.data(),
                           .send_bytes = {send_bytes.begin(), send_bytes.end()},
                           .recv_bytes = {recv_bytes.begin(), recv_bytes.end()}});
    auto* to = out.data();
    for (std::size_t r = 0; r < size(); ++r) {
      auto const& sent = group_->at(r).send_bytes;
      auto const first =
          std::accumulate(sent.begin(), sent.begin() + static_cast<std::ptrdiff_t>(rank()), std::size_t{0});
      if (recv_bytes[r] == 0) continue;
      copy_bytes(to, group_->at(r).in + first, recv_bytes[r]);
      to += recv_bytes[r];
    }
    group_->meet(rank());
  }

  // Every rank reduces its shard into its own buffer, where nobody else reads; then all copy the others' shards.
  void do_all_reduce(elements inout, std::size_t count, reduce_op op) override {
    auto* const mine = static_cast<std::byte*>(inout.data);
    group_->enter(rank(), {.operation = "all_reduce",
                           .signature = {count, static_cast<std::size_t>(inout.type), static_cast<std::size_t>(op)},
                           .in = mine});
    auto const width = size_of(inout.type);
    auto const shards = even_parts(count, size());
    std::vector<std::size_t> offsets(size());
    std::exclusive_scan(shards.begin(), shards.end(), offsets.begin(), std::size_t{0});
    reduce_shard({mine + offsets[rank()] * width, inout.type}, offsets[rank()] * width, shards[rank()], op);
    group_->meet(rank(), group::then::touches_memory);
    for (std::size_t r = 0; r < size(); ++r) {
      copy_bytes(mine + offsets[r] * width, group_->at(r).in + offsets[r] * width, shards[r] * width);
    }
    group_->meet(rank());
  }

  void do_reduce_scatter(const_elements in, elements out, sizes counts, reduce_op op) override {
    call mine{.operation = "reduce_scatter",
              .signature = {counts.begin(), counts.end()},
              .in = static_cast<std::byte const*>(in.data)};
    mine.signature.push_back(static_cast<std::size_t>(in.type));
    mine.signature.push_back(static_cast<std::size_t>(op));
    group_->enter(rank(), std::move(mine));
    auto const own = counts.begin() + static_cast<std::ptrdiff_t>(rank());
    reduce_shard(out, std::accumulate(counts.begin(), own, std::size_t{0}) * size_of(in.type), *own, op);
    group_->meet(rank());
  }

  void do_broadcast(std::span<std::byte> inout, std::size_t root) override {
    group_->enter(rank(), {.operation = "broadcast", .signature = {inout.size(), root}, .in = inout.data()});
    copy_bytes(inout.data(), group_->at(root).in, inout.size());
    group_->meet(rank());
  }

  void do_barrier() override { group_->enter(rank(), {.operation = "barrier"}, group::then::done); }

  void do_send(std::span<std::byte const> in, std::size_t peer) override { group_->send(rank(), peer, in); }
  void do_recv(std::span<std::byte> out, std::size_t peer) override { group_->recv(rank(), peer, out); }

  std::unique_ptr<communicator> do_split(std::uint32_t color, std::uint32_t key) override {
    // Color and key travel in send_bytes' place: they differ by rank and so are no part of the signature.
    std::vector<std::size_t> mine{color, key};
    group_->enter(rank(), {.operation = "split", .in = reinterpret_cast<std::byte const*>(mine.data())});
    std::vector<std::pair<std::size_t, std::size_t>> members;  // (key, old rank)
    for (std::size_t r = 0; r < size(); ++r) {
      auto const* const theirs = reinterpret_cast<std::size_t const*>(group_->at(r).in);
      if (theirs[0] == color) members.emplace_back(theirs[1], r);
    }
    std::sort(members.begin(), members.end());
    auto const leader = members.front().second;
    if (rank() == leader) {
      auto child = std::make_shared<group>(members.size(), timeout());
      group_->adopt(child);
      group_->at(rank()).child = std::move(child);
    }
    group_->meet(rank(), group::then::touches_memory);
    auto child = group_->at(leader).child;
    group_->meet(rank());
    auto const me = std::find(members.begin(), members.end(), std::pair{std::size_t{key}, rank()});
    return std::make_unique<inproc_communicator>(std::move(child), static_cast<std::size_t>(me - members.begin()));
  }

  // out[i] = value of rank 0 op rank 1 op … at byte `offset` of each rank's input. `out` may be this rank's input.
  void reduce_shard(elements out, std::size_t offset, std::size_t count, reduce_op op) {
    // Blocks stay in the first-level cache while all ranks' values are added.
    constexpr std::size_t block = 2048;
    alignas(64) std::array<std::byte, block * sizeof(float)> sum;
    auto const width = size_of(out.type);
    auto* const to = static_cast<std::byte*>(out.data);
    for (std::size_t first = 0; first < count; first += block) {
      auto const many = std::min(block, count - first);
      std::memcpy(sum.data(), group_->at(0).in + offset + first * width, many * width);
      for (std::size_t r = 1; r < size(); ++r) {
        combine(sum.data(), sum.data(), group_->at(r).in + offset + first * width, many, out.type, op);
      }
      std::memcpy(to + first * width, sum.data(), many * width);
    }
  }

  std::shared_ptr<group> group_;
};

std::vector<std::unique_ptr<inproc_communicator>> make_group(std::size_t size, std::chrono::milliseconds timeout) {
  if (size == 0) throw error{errc::invalid_argument, "a group of 0 ranks was asked for: use 1 or more"};
  auto const shared = std::make_shared<group>(size, timeout);
  std::vector<std::unique_ptr<inproc_communicator>> ends;
  ends.reserve(size);
  for (std::size_t r = 0; r < size; ++r) ends.push_back(std::make_unique<inproc_communicator>(shared, r));
  return ends;
}

std::string text_of(std::exception_ptr const& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (std::exception const& why) {
    return why.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

}  // namespace

std::vector<std::unique_ptr<communicator>> make_inproc_group(std::size_t size, std::chrono::milliseconds timeout) {
  std::vector<std::unique_ptr<communicator>> ends;
  for (auto& end : make_group(size, timeout)) ends.push_back(std::move(end));
  return ends;
}

void run_ranks(std::size_t size, std::function<void(communicator&)> const& body, std::chrono::milliseconds timeout) {
  auto const ends = make_group(size, timeout);
  std::mutex mutex;
  std::exception_ptr first;
  auto const run = [&](inproc_communicator& end) {
    try {
      body(end);
      end.leave_if_idle();
    } catch (...) {
      auto const failure = std::current_exception();
      {
        // The abort comes after this, so a failure that it causes is never the first.
        std::scoped_lock const lock{mutex};
        if (!first) first = failure;
      }
      end.fail("rank " + std::to_string(end.rank()) + " failed: " + text_of(failure));
    }
  };
  {
    std::vector<std::jthread> threads;
    threads.reserve(size);
    for (auto const& end : ends) threads.emplace_back(run, std::ref(*end));
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace gradwire
