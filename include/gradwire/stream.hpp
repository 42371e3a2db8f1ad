#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace gradwire {

enum class device_kind : std::uint8_t { cpu, cuda };

//! Names a stream without owning it: a CUDA stream (`handle` is a cudaStream_t) or a host_stream. The null host stream,
//! the default, runs everything inline on the calling thread.
struct stream_ref {
  device_kind kind = device_kind::cpu;
  void* handle = nullptr;
  friend bool operator==(stream_ref const&, stream_ref const&) = default;
};

//! How long a host thread waits for another before it gives up, unless told otherwise.
inline constexpr std::chrono::milliseconds default_timeout{300'000};
//! For a wait whose end is certain, because all that it waits for has limits of its own.
inline constexpr std::chrono::milliseconds no_timeout = std::chrono::milliseconds::max();

//! A point in a stream. A default-constructed event counts as reached. Copies share the same point.
//! If a task before the point failed, the point carries that failure: whoever waits for it, host or stream, gets it.
//! On a CUDA stream what can fail is a kernel that meets a damaged payload; the host learns of it, other CUDA streams
//! do not, and a host failure does not reach a CUDA stream that waits for it.
class event {
 public:
  //! Sets the point behind everything enqueued on `stream` so far. Does not block (on the null stream the point is
  //! reached at once). May be called again; waits already made keep the point they had.
  void record(stream_ref stream);
  //! True when the point was reached, with or without failure.
  [[nodiscard]] bool ready() const;
  //! Blocks the calling thread until the point is reached; rethrows the failure before it. Throws errc::timeout.
  void wait(std::chrono::milliseconds timeout = default_timeout) const;

  struct state;

 private:
  friend void wait(stream_ref, event const&, std::chrono::milliseconds);
  std::shared_ptr<state> state_;
};

//! A FIFO of tasks run by one worker thread. After a task fails, the tasks behind it are dropped unrun until
//! synchronize() reports the failure (as after a sticky CUDA error, but recoverable); events behind it carry the
//! failure.
class host_stream {
 public:
  //! `name` is shown by debuggers (15 characters are kept).
  explicit host_stream(std::string const& name = "gradwire");
  //! Runs what was enqueued, then joins. Never throws.
  ~host_stream();
  host_stream(host_stream const&) = delete;
  host_stream& operator=(host_stream const&) = delete;
  host_stream(host_stream&&) = delete;
  host_stream& operator=(host_stream&&) = delete;

  [[nodiscard]] stream_ref ref() noexcept;

  struct state;

 private:
  std::unique_ptr<state> state_;
};

//! Enqueues `task` on a host stream and returns; the null stream runs it inline and lets its exception through.
//! Throws errc::unsupported for a CUDA stream.
void enqueue(stream_ref stream, std::function<void()> task);

//! Makes `stream` wait for `point` without blocking the caller; the null stream blocks the caller. A host stream that
//! waits for longer than `timeout` has failed with errc::timeout.
void wait(stream_ref stream, event const& point, std::chrono::milliseconds timeout = default_timeout);

//! Blocks until everything enqueued on `stream` so far is done; rethrows and clears the first failure. Throws
//! errc::timeout.
void synchronize(stream_ref stream, std::chrono::milliseconds timeout = default_timeout);

}  // namespace gradwire
