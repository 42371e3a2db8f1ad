// A communicator over collectives that somebody else has, as Python calls: torch's, for groups of any backend.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <gradwire/error.hpp>

#include "bindings.hpp"
#include "comm/host_communicator.hpp"

namespace nb = nanobind;

namespace gradwire::python {
namespace {

//! All operations are exchanges of messages: `collectives.exchange(sends, receives)` with lists of (rank, memoryview),
//! in which one between two ranks is the only one under way. It blocks without the interpreter's lock, for the timeout
//! at most, and raises gradwire.Error.
class borrowed_communicator final : public host_communicator {
 public:
  borrowed_communicator(nb::object collectives, std::size_t rank, std::size_t size, std::chrono::milliseconds timeout)
      : host_communicator{rank, size, timeout}, collectives_{std::move(collectives)} {}

  [[nodiscard]] std::string_view transport() const noexcept override { return "torch"; }
  [[nodiscard]] comm_caps caps() const noexcept override { return {.in_order_sum = true}; }
  //! torch has no way to end a wait that is under way: those end by the timeout, later ones at once.
  void abort() noexcept override { aborted_ = true; }

 private:
  struct message {
    std::size_t peer = 0;
    std::span<std::byte> bytes;
  };

  void exchange(std::vector<message> const& sends, std::vector<message> const& receives) const {
    if (aborted_) throw error{errc::communicator, "rank " + std::to_string(rank()) + " aborted the group"};
    if (sends.empty() && receives.empty()) return;
    nb::gil_scoped_acquire const acquired;
    try {
      collectives_.get().attr("exchange")(as_list(sends), as_list(receives));
    } catch (nb::python_error const& raised) {
      nb::object const code = nb::getattr(raised.value(), "code", nb::none());
      throw error{nb::str(code).equal(nb::str("timeout")) ? errc::timeout : errc::communicator,
                  nb::cast<std::string>(nb::str(raised.value()))};
    }
  }

  static nb::list as_list(std::vector<message> const& messages) {
    nb::list result;
    for (auto const& [peer, bytes] : messages) {
      auto* const data = reinterpret_cast<char*>(bytes.data());
      nb::object const view =
          nb::steal(PyMemoryView_FromMemory(data, static_cast<Py_ssize_t>(bytes.size()), PyBUF_WRITE));
      if (!view.is_valid()) throw nb::python_error{};
      result.append(nb::make_tuple(peer, view));
    }
    return result;
  }

  // torch makes tensors of memory that it may write, also for sending.
  static std::span<std::byte> writable(std::span<std::byte const> bytes) {
    return {const_cast<std::byte*>(bytes.data()), bytes.size()};
  }

  static std::vector<std::size_t> offsets_of(sizes bytes) {
    std::vector<std::size_t> result(bytes.size());
    std::exclusive_scan(bytes.begin(), bytes.end(), result.begin(), std::size_t{0});
    return result;
  }

  //! The parts for, or from, the other ranks that are not empty; a rank further round the ring later.
  [[nodiscard]] std::vector<message> parts(std::span<std::byte> whole, sizes bytes) const {
    auto const offsets = offsets_of(bytes);
    std::vector<message> result;
    for (std::size_t step = 1; step < size(); ++step) {
      auto const peer = (rank() + step) % size();
      if (bytes[peer] != 0) result.push_back({peer, whole.subspan(offsets[peer], bytes[peer])});
    }
    return result;
  }

  void do_all_gather(std::span<std::byte const> in, std::span<std::byte> out, sizes bytes) override {
    auto* const own = out.data() + offsets_of(bytes)[rank()];
    if (!in.empty() && own != in.data()) std::memcpy(own, in.data(), in.size());
    std::vector<message> sends;
    for (std::size_t step = 1; step < size() && !in.empty(); ++step) {
      sends.push_back({(rank() + step) % size(), writable(in)});
    }
    exchange(sends, parts(out, bytes));
  }

  void do_all_to_all(std::span<std::byte const> in, sizes send_bytes, std::span<std::byte> out,
                     sizes recv_bytes) override {
    if (send_bytes[rank()] != 0) {
      std::memcpy(out.data() + offsets_of(recv_bytes)[rank()], in.data() + offsets_of(send_bytes)[rank()],
                  send_bytes[rank()]);
    }
    exchange(parts(writable(in), send_bytes), parts(out, recv_bytes));
  }

  void do_send(std::span<std::byte const> in, std::size_t peer) override {
    if (!in.empty()) exchange({{peer, writable(in)}}, {});
  }

  void do_recv(std::span<std::byte> out, std::size_t peer) override {
    if (!out.empty()) exchange({}, {{peer, out}});
  }

  std::unique_ptr<communicator> do_split(std::uint32_t /*color*/, std::uint32_t /*key*/) override {
    throw error{errc::unsupported, "a group over torch's collectives cannot be split: make one of the ranks wanted"};
  }

  carried collectives_;
  std::atomic<bool> aborted_ = false;
};

}  // namespace

void bind_collectives(nb::module_& module) {
  using namespace nb::literals;
  module.def(
      "make_torch",
      [](nb::object collectives, std::size_t rank, std::size_t size, double timeout) -> std::unique_ptr<communicator> {
        return std::make_unique<borrowed_communicator>(std::move(collectives), rank, size, to_timeout(timeout));
      },
      "collectives"_a, "rank"_a, "size"_a, "timeout"_a);
}

}  // namespace gradwire::python
