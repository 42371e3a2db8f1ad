#pragma once
//! A communicator that passes everything on to another one, and does what a test asks for on the way: keeps a record,
//! makes the wire slow or holds it, fails one collective.

#include <cstdint>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gradwire/communicator.hpp>
#include <gradwire/error.hpp>

namespace gradwire::test {

class scripted_communicator final : public communicator {
 public:
  explicit scripted_communicator(communicator& inner) : inner_{inner} {}

  //! Before each collective the wire yields up to 7 times, drawn from `seed`.
  void delay_from(std::uint64_t seed) { seed_ = 2 * seed + 1; }
  //! From now on the wire stops before each collective until release().
  void hold() { held_ = release_.get_future().share(); }
  void release() { release_.set_value(); }
  //! The collective after `count` more throws errc::communicator on the wire.
  void fail_after(std::size_t count) { failing_ = calls_ + count; }

  //! "all_gather 128" and so on, in order of issue.
  [[nodiscard]] std::vector<std::string> issued() const {
    std::scoped_lock const lock{mutex_};
    return issued_;
  }

  [[nodiscard]] std::size_t rank() const noexcept override { return inner_.rank(); }
  [[nodiscard]] std::size_t size() const noexcept override { return inner_.size(); }
  [[nodiscard]] std::string_view transport() const noexcept override { return inner_.transport(); }
  [[nodiscard]] comm_caps caps() const noexcept override { return inner_.caps(); }
  [[nodiscard]] comm_stats stats() const noexcept override { return inner_.stats(); }
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept override { return inner_.timeout(); }

  work all_gather(std::span<std::byte const> in, std::span<std::byte> out, std::span<std::size_t const> bytes,
                  stream_ref stream) override {
    script("all_gather", out.size(), stream);
    return inner_.all_gather(in, out, bytes, stream);
  }
  work all_to_all(std::span<std::byte const> in, std::span<std::size_t const> send_bytes, std::span<std::byte> out,
                  std::span<std::size_t const> recv_bytes, stream_ref stream) override {
    script("all_to_all", in.size(), stream);
    return inner_.all_to_all(in, send_bytes, out, recv_bytes, stream);
  }
  work all_reduce(elements inout, std::size_t count, reduce_op op, stream_ref stream) override {
    script("all_reduce", count, stream);
    return inner_.all_reduce(inout, count, op, stream);
  }
  work reduce_scatter(const_elements in, elements out, std::span<std::size_t const> counts, reduce_op op,
                      stream_ref stream) override {
    script("reduce_scatter", counts.size(), stream);
    return inner_.reduce_scatter(in, out, counts, op, stream);
  }
  work broadcast(std::span<std::byte> inout, std::size_t root, stream_ref stream) override {
    script("broadcast", inout.size(), stream);
    return inner_.broadcast(inout, root, stream);
  }
  work send(std::span<std::byte const> in, std::size_t peer, stream_ref stream) override {
    return inner_.send(in, peer, stream);
  }
  work recv(std::span<std::byte> out, std::size_t peer, stream_ref stream) override {
    return inner_.recv(out, peer, stream);
  }
  work barrier(stream_ref stream) override { return inner_.barrier(stream); }
  [[nodiscard]] std::unique_ptr<communicator> split(std::uint32_t color, std::uint32_t key) override {
    return inner_.split(color, key);
  }
  void abort() noexcept override { inner_.abort(); }

 private:
  void script(char const* operation, std::size_t size, stream_ref stream) {
    bool const fails = calls_++ == failing_;
    {
      std::scoped_lock const lock{mutex_};
      issued_.push_back(std::string{operation} + " " + std::to_string(size));
    }
    seed_ *= 6364136223846793005u;  // 0 stays 0: no delays
    std::uint64_t const yields = (seed_ >> 40) % 8;
    enqueue(stream, [=, held = held_] {
      for (std::uint64_t i = 0; i < yields; ++i) std::this_thread::yield();
      if (held.valid()) held.wait();
      if (fails) throw error{errc::communicator, "this collective fails because a test asked for it"};
    });
  }

  communicator& inner_;
  std::uint64_t seed_ = 0;
  std::promise<void> release_;
  std::shared_future<void> held_;
  std::size_t calls_ = 0;
  std::size_t failing_ = static_cast<std::size_t>(-1);
  mutable std::mutex mutex_;
  std::vector<std::string> issued_;
};

}  // namespace gradwire::test
