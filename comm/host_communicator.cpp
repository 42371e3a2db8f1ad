#include "comm/host_communicator.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>
#include <utility>

#include <gradwire/buffer.hpp>

#include "comm/arithmetic.hpp"

namespace gradwire {
namespace {

std::size_t total(std::span<std::size_t const> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
}

std::vector<std::size_t> copy(std::span<std::size_t const> sizes) { return {sizes.begin(), sizes.end()}; }

bool overlap(void const* a, std::size_t a_bytes, void const* b, std::size_t b_bytes) {
  auto const* const left = static_cast<std::byte const*>(a);
  auto const* const right = static_cast<std::byte const*>(b);
  return a_bytes != 0 && b_bytes != 0 && std::less<>{}(left, right + b_bytes) && std::less<>{}(right, left + a_bytes);
}

void check_size(char const* operation, char const* what, std::size_t given, std::size_t expected) {
  if (given == expected) return;
  throw error{errc::invalid_argument, std::string{operation} + ": " + what + " is " + std::to_string(given) +
                                          " and must be " + std::to_string(expected)};
}

void check_apart(char const* operation, void const* in, std::size_t in_bytes, void const* out, std::size_t out_bytes) {
  if (!overlap(in, in_bytes, out, out_bytes)) return;
  throw error{errc::invalid_argument, std::string{operation} + ": in and out overlap; give them memory of their own"};
}

}  // namespace

std::vector<std::size_t> even_parts(std::size_t count, std::size_t parts) {
  std::vector<std::size_t> result(parts, count / parts);
  for (std::size_t i = 0; i < count % parts; ++i) ++result[i];
  return result;
}

std::string name_ranks(std::span<std::size_t const> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i != 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

host_communicator::host_communicator(std::size_t rank, std::size_t size, std::chrono::milliseconds timeout)
    : rank_{rank}, size_{size}, timeout_{timeout} {
  if (size == 0) throw error{errc::invalid_argument, "a group of 0 ranks was asked for: use 1 or more"};
  if (rank >= size) {
    throw error{errc::invalid_argument, "rank " + std::to_string(rank) + " was given in a group of " +
                                            std::to_string(size) + ": ranks go from 0 to " + std::to_string(size - 1)};
  }
  if (timeout.count() <= 0) {
    throw error{errc::invalid_argument,
                "a timeout of " + std::to_string(timeout.count()) + " ms was given: use 1 ms or more"};
  }
}

comm_stats host_communicator::stats() const noexcept { return {bytes_sent_.load(), collectives_.load()}; }

work host_communicator::all_gather(std::span<std::byte const> in, std::span<std::byte> out, sizes bytes,
                                   stream_ref stream) {
  constexpr auto operation = "all_gather";
  check_size(operation, "the number of entries in bytes", bytes.size(), size_);
  check_size(operation, "the size of in", in.size(), bytes[rank_]);
  check_size(operation, "the size of out", out.size(), total(bytes));
  auto const* const own = out.data() + total(bytes.first(rank_));
  if (in.data() != own) check_apart(operation, in.data(), in.size(), out.data(), out.size());
  auto result = launch(operation, stream, [this, in, out, owned = copy(bytes)] { do_all_gather(in, out, owned); });
  count((size_ - 1) * in.size());
  return result;
}

work host_communicator::all_to_all(std::span<std::byte const> in, sizes send_bytes, std::span<std::byte> out,
                                   sizes recv_bytes, stream_ref stream) {
  constexpr auto operation = "all_to_all";
  check_size(operation, "the number of entries in send_bytes", send_bytes.size(), size_);
  check_size(operation, "the number of entries in recv_bytes", recv_bytes.size(), size_);
  check_size(operation, "the size of in", in.size(), total(send_bytes));
  check_size(operation, "the size of out", out.size(), total(recv_bytes));
  check_size(operation, "the own entry of recv_bytes", recv_bytes[rank_], send_bytes[rank_]);
  check_apart(operation, in.data(), in.size(), out.data(), out.size());
  auto const sent = in.size() - send_bytes[rank_];
  auto result = launch(operation, stream, [this, in, out, send = copy(send_bytes), receive = copy(recv_bytes)] {
    do_all_to_all(in, send, out, receive);
  });
  count(sent);
  return result;
}

work host_communicator::all_reduce(elements inout, std::size_t elements_count, reduce_op op, stream_ref stream) {
  auto const bytes = elements_count * size_of(inout.type);
  auto result =
      launch("all_reduce", stream, [this, inout, elements_count, op] { do_all_reduce(inout, elements_count, op); });
  count(2 * (size_ - 1) * bytes / size_);
  return result;
}

work host_communicator::reduce_scatter(const_elements in, elements out, sizes counts, reduce_op op, stream_ref stream) {
  constexpr auto operation = "reduce_scatter";
  check_size(operation, "the number of entries in counts", counts.size(), size_);
  if (in.type != out.type) throw error{errc::invalid_argument, "reduce_scatter: in and out differ in dtype"};
  auto const width = size_of(in.type);
  check_apart(operation, in.data, total(counts) * width, out.data, counts[rank_] * width);
  auto const sent = (total(counts) - counts[rank_]) * width;
  auto result =
      launch(operation, stream, [this, in, out, owned = copy(counts), op] { do_reduce_scatter(in, out, owned, op); });
  count(sent);
  return result;
}

work host_communicator::broadcast(std::span<std::byte> inout, std::size_t root, stream_ref stream) {
  if (root >= size_) {
    throw error{errc::invalid_argument, "broadcast: root " + std::to_string(root) + " is not one of the ranks 0 to " +
                                            std::to_string(size_ - 1)};
  }
  auto result = launch("broadcast", stream, [this, inout, root] { do_broadcast(inout, root); });
  count(root == rank_ ? (size_ - 1) * inout.size() : 0);
  return result;
}

work host_communicator::send(std::span<std::byte const> in, std::size_t peer, stream_ref stream) {
  check_peer("send", peer);
  auto result = launch("send", stream, [this, in, peer] { do_send(in, peer); });
  bytes_sent_ += in.size();
  return result;
}

work host_communicator::recv(std::span<std::byte> out, std::size_t peer, stream_ref stream) {
  check_peer("recv", peer);
  return launch("recv", stream, [this, out, peer] { do_recv(out, peer); });
}

work host_communicator::barrier(stream_ref stream) {
  auto result = launch("barrier", stream, [this] { do_barrier(); });
  count(0);
  return result;
}

std::unique_ptr<communicator> host_communicator::split(std::uint32_t color, std::uint32_t key) {
  std::unique_ptr<communicator> result;
  launch("split", {}, [&] { result = do_split(color, key); });
  return result;
}

void host_communicator::do_all_reduce(elements inout, std::size_t elements_count, reduce_op op) {
  auto const counts = even_parts(elements_count, size_);
  auto const width = size_of(inout.type);
  buffer own{counts[rank_] * width};
  do_reduce_scatter(inout, {own.data(), inout.type}, counts, op);
  auto bytes = counts;
  for (auto& entry : bytes) entry *= width;
  do_all_gather(own.bytes(), {static_cast<std::byte*>(inout.data), elements_count * width}, bytes);
}

void host_communicator::do_reduce_scatter(const_elements in, elements out, sizes counts, reduce_op op) {
  auto const width = size_of(in.type);
  auto send_bytes = copy(counts);
  for (auto& entry : send_bytes) entry *= width;
  auto const own_bytes = send_bytes[rank_];
  std::vector<std::size_t> const recv_bytes(size_, own_bytes);
  buffer parts{own_bytes * size_};
  do_all_to_all({static_cast<std::byte const*>(in.data), total(send_bytes)}, send_bytes, parts.bytes(), recv_bytes);
  if (own_bytes == 0) return;
  std::memcpy(out.data, parts.data(), own_bytes);
  for (std::size_t r = 1; r < size_; ++r) {
    combine(out.data, out.data, parts.data() + r * own_bytes, counts[rank_], in.type, op);
  }
}

void host_communicator::do_broadcast(std::span<std::byte> inout, std::size_t root) {
  std::vector<std::size_t> send_bytes(size_, 0);
  std::vector<std::size_t> recv_bytes(size_, 0);
  if (rank_ != root) {
    recv_bytes[root] = inout.size();
    do_all_to_all({}, send_bytes, inout, recv_bytes);
    return;
  }
  buffer copies{(size_ - 1) * inout.size()};
  std::size_t offset = 0;
  for (std::size_t r = 0; r < size_; ++r) {
    if (r == root) continue;
    send_bytes[r] = inout.size();
    if (!inout.empty()) std::memcpy(copies.data() + offset, inout.data(), inout.size());
    offset += inout.size();
  }
  do_all_to_all(copies.bytes(), send_bytes, {}, recv_bytes);
}

void host_communicator::do_barrier() {
  std::vector<std::size_t> const bytes(size_, 1);
  std::vector<std::byte> all(size_);
  std::byte const own{};
  do_all_gather({&own, 1}, all, bytes);
}

work host_communicator::launch(char const* operation, stream_ref stream, std::function<void()> body) {
  check_usable(operation);
  ++pending_;
  // Counts the operation as ended also when the stream drops the task unrun.
  std::shared_ptr<void> const ended{nullptr, [this](void*) { --pending_; }};
  enqueue(stream, [this, operation, ended, run = std::move(body)] {
    try {
      check_usable(operation);
      run();
    } catch (error const& failed) {
      remember(failed);
      throw;
    } catch (std::exception const& failed) {
      error const wrapped{errc::communicator, std::string{operation} + ": " + failed.what()};
      remember(wrapped);
      throw wrapped;
    }
  });
  event done;
  done.record(stream);
  return work{std::move(done)};
}

void host_communicator::count(std::size_t bytes_sent) noexcept {
  bytes_sent_ += bytes_sent;
  ++collectives_;
}

void host_communicator::check_peer(char const* operation, std::size_t peer) const {
  if (peer < size_ && peer != rank_) return;
  throw error{errc::invalid_argument, std::string{operation} + ": peer " + std::to_string(peer) +
                                          " must be another rank of 0 to " + std::to_string(size_ - 1) + ", this is " +
                                          std::to_string(rank_)};
}

void host_communicator::check_usable(char const* operation) const {
  std::scoped_lock const lock{mutex_};
  if (!failure_) return;
  throw error{failure_->code(),
              std::string{operation} + ": this group failed before and is unusable: " + failure_->what()};
}

void host_communicator::remember(error const& why) {
  std::scoped_lock const lock{mutex_};
  if (!failure_) failure_ = why;
}

}  // namespace gradwire
