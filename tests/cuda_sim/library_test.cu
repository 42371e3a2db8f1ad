// What core/cuda and the kernels promise around the bytes: order, errors, memory, launches, capture.
#include <gtest/gtest.h>

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <gradwire/codec.hpp>
#include <gradwire/cuda/memory.hpp>
#include <gradwire/cuda/stream.hpp>
#include <gradwire/error.hpp>

#include "tests/cuda_sim/cuda_sim.hpp"
#include "tests/support/arrays.hpp"

namespace gradwire::test {
namespace {

using namespace std::chrono_literals;

template <class F>
std::string refusal(errc code, F&& call) {
  try {
    call();
  } catch (error const& failure) {
    EXPECT_EQ(failure.code(), code) << failure.what();
    return failure.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

bool contains(std::string const& text, char const* part) { return text.find(part) != std::string::npos; }

// Device memory on a stream of its own, and its twin in pinned memory.
struct array {
  exec on;
  cuda::device_buffer device;
  cuda::pinned_buffer host;

  array(std::size_t bytes, exec const& where) : on{where}, device{bytes, where}, host{bytes} {}
  template <class T>
  [[nodiscard]] T* there() {
    return reinterpret_cast<T*>(device.data());
  }
  template <class T>
  [[nodiscard]] T* here() {
    return reinterpret_cast<T*>(host.data());
  }
  void send() { cuda::copy_to_device(device.data(), host.data(), host.size(), on.stream); }
  void fetch() {
    cuda::copy_to_host(host.data(), device.data(), host.size(), on.stream);
    synchronize(on.stream);
  }
};

class CudaLibrary : public testing::Test {
 protected:
  void SetUp() override { cuda_sim::configure({.pace = cuda_sim::pace::lazy}); }

  cuda::stream stream_;
  exec on_{device_kind::cuda, 0, stream_.ref()};
};

TEST_F(CudaLibrary, RefusesTheDefaultStreamAndHostStreams) {
  exec on = on_;
  on.stream.handle = nullptr;
  EXPECT_TRUE(contains(refusal(errc::invalid_argument, [&] { cuda::device_buffer{4, on}; }), "default CUDA stream"));
  on.stream = {};
  EXPECT_TRUE(contains(refusal(errc::invalid_argument, [&] { cuda::device_buffer{4, on}; }), "host stream"));
}

TEST_F(CudaLibrary, NamesTheSizeThatMemoryLacked) {
  cuda_sim::configure({.memory = 1 << 20});
  auto const text = refusal(errc::out_of_memory, [&] { cuda::device_buffer{2 << 20, on_}; });
  EXPECT_TRUE(contains(text, "2097152 bytes of device memory")) << text;
  EXPECT_TRUE(contains(text, "cudaErrorMemoryAllocation")) << text;
}

TEST_F(CudaLibrary, NamesTheDeviceThatIsNotThere) {
  EXPECT_TRUE(contains(refusal(errc::cuda, [] { cuda::stream{7}; }), "cudaErrorInvalidDevice"));
}

TEST_F(CudaLibrary, RemembersTheMostScratchThatWasInUse) {
  cuda::scratch scratch{0, stream_.ref()};
  exec const on{device_kind::cuda, 0, stream_.ref(), &scratch};
  {
    cuda::device_buffer const first{1000, on};
    cuda::device_buffer moved = cuda::device_buffer{500, on};
    EXPECT_EQ(scratch.bytes_in_use(), 1500u);
    moved = {};
    EXPECT_EQ(scratch.bytes_in_use(), 1000u);
  }
  EXPECT_EQ(scratch.bytes_in_use(), 0u);
  EXPECT_EQ(scratch.high_water_mark(), 1500u);
}

TEST_F(CudaLibrary, RefusesTheScratchOfAnotherStream) {
  cuda::stream other;
  cuda::scratch scratch{0, other.ref()};
  exec const on{device_kind::cuda, 0, stream_.ref(), &scratch};
  EXPECT_TRUE(contains(refusal(errc::invalid_argument, [&] { cuda::device_buffer{4, on}; }), "one scratch per stream"));
}

TEST_F(CudaLibrary, OrdersStreamsByEvents) {
  cuda::stream second;
  array a{64, on_};
  std::memset(a.host.data(), 7, 64);
  a.send();
  event sent;
  sent.record(stream_.ref());
  wait(second.ref(), sent);
  cuda::pinned_buffer back{64};
  cuda::copy_to_host(back.data(), a.device.data(), 64, second.ref());
  event copied;
  copied.record(second.ref());
  copied.wait();
  EXPECT_TRUE(copied.ready());
  EXPECT_EQ(back.data()[63], std::byte{7});
}

TEST_F(CudaLibrary, MakesADeviceStreamWaitForAHostStreamWithoutBlockingTheCaller) {
  array a{4, on_};
  host_stream host;
  enqueue(host.ref(), [&] {
    std::this_thread::sleep_for(20ms);
    a.host.data()[0] = std::byte{9};
  });
  event written;
  written.record(host.ref());
  wait(stream_.ref(), written);
  a.send();
  a.fetch();
  EXPECT_EQ(a.host.data()[0], std::byte{9});
}

TEST_F(CudaLibrary, MakesAHostStreamWaitForADeviceStream) {
  array a{4, on_};
  a.host.data()[0] = std::byte{3};
  a.send();
  cuda::copy_to_host(a.host.data(), a.device.data(), 4, stream_.ref());
  event fetched;
  fetched.record(stream_.ref());
  host_stream host;
  wait(host.ref(), fetched);
  std::byte seen{};
  enqueue(host.ref(), [&] { seen = a.host.data()[0]; });
  synchronize(host.ref());
  EXPECT_EQ(seen, std::byte{3});
}

TEST_F(CudaLibrary, TakesNoHostTasks) {
  EXPECT_TRUE(contains(refusal(errc::unsupported, [&] { enqueue(stream_.ref(), [] {}); }), "host stream and an event"));
}

// ---- Codecs

//! A bucket of equal segments for one codec, on the device.
struct bucket {
  gradwire::codec codec;
  std::vector<segment> segments;
  array gradient;
  array residual;
  array payload;

  bucket(char const* spec, std::size_t count, std::size_t elements, exec const& on)
      : codec{gradwire::codec::parse(spec)},
        segments(count),
        gradient{count * elements * sizeof(float), on},
        residual{count * elements * sizeof(float), on},
        payload{count * codec.encoded_bytes(elements), on} {
    for (std::size_t i = 0; i < count; ++i) {
      segments[i] = {i * elements, i * elements, elements, 0, static_cast<std::uint32_t>(i)};
    }
    auto const values = gaussian(count * elements, 1);
    std::copy(values.begin(), values.end(), gradient.here<float>());
    std::fill_n(residual.here<float>(), values.size(), 0.0f);
    gradient.send();
    residual.send();
  }

  void encode(exec const& on) {
    codec.encode_with_feedback(on, {gradient.device.data(), dtype::f32}, residual.there<float>(), segments, {1, 2},
                               {payload.device.data(), payload.device.size()});
  }
  [[nodiscard]] std::vector<std::byte> expected() {
    std::vector<std::byte> bytes(payload.host.size());
    std::vector<float> kept(gradient.host.size() / sizeof(float), 0.0f);
    codec.encode_with_feedback({}, {gradient.host.data(), dtype::f32}, kept.data(), segments, {1, 2}, bytes);
    return bytes;
  }
  [[nodiscard]] std::vector<std::byte> found() {
    payload.fetch();
    return {payload.host.data(), payload.host.data() + payload.host.size()};
  }
};

constexpr char const* specs[] = {"none", "f16", "bf16", "onebit", "quant(round=stochastic)", "topk"};

TEST_F(CudaLibrary, EncodesABucketOfFewSegmentsInOneLaunchWithoutWaitingOrAllocating) {
  for (char const* const spec : {"none", "f16", "bf16", "onebit", "quant"}) {
    SCOPED_TRACE(spec);
    bucket b{spec, 32, 100, on_};
    auto const before = cuda_sim::count();
    b.encode(on_);
    auto const after = cuda_sim::count();
    EXPECT_EQ(after.kernels - before.kernels, 1u);
    EXPECT_EQ(after.synchronous, before.synchronous);
    EXPECT_EQ(after.allocations, before.allocations);
    EXPECT_EQ(b.found() == b.expected(), true);
  }
}

TEST_F(CudaLibrary, EncodesABucketOfManySegmentsWithUploadsInTheKernelsParameters) {
  for (char const* const spec : specs) {
    SCOPED_TRACE(spec);
    bucket b{spec, 300, 40, on_};
    auto const before = cuda_sim::count();
    b.encode(on_);
    auto const after = cuda_sim::count();
    EXPECT_EQ(after.synchronous, before.synchronous);
    EXPECT_LE(after.kernels - before.kernels, 20u);
    EXPECT_EQ(b.found() == b.expected(), true);
  }
}

TEST_F(CudaLibrary, DecodesAndReducesWithoutWaiting) {
  for (char const* const spec : specs) {
    SCOPED_TRACE(spec);
    bucket b{spec, 40, 40, on_};
    b.encode(on_);
    array out{b.gradient.host.size(), on_};
    std::span<std::byte const> const payload{b.payload.device.data(), b.payload.device.size()};
    b.codec.decode(on_, payload, b.segments, {out.device.data(), dtype::f32});
    synchronize(stream_.ref());  // the stream's fault word exists from here on
    std::vector<std::byte const*> const payloads(100, b.payload.device.data());
    auto const before = cuda_sim::count();
    b.codec.decode_add(on_, payload, b.segments, {out.device.data(), dtype::f32});
    b.codec.reduce_encode(on_, payloads, 0.01f, b.residual.there<float>(), b.segments, {1, 3},
                          {b.payload.device.data(), b.payload.device.size()});
    EXPECT_EQ(cuda_sim::count().synchronous, before.synchronous);
    synchronize(stream_.ref());
  }
}

TEST_F(CudaLibrary, GivesTheSameBytesWhenACapturedGraphIsReplayed) {
  for (char const* const spec : specs) {
    SCOPED_TRACE(spec);
    bucket b{spec, 50, 40, on_};
    synchronize(stream_.ref());
    auto* const stream = static_cast<cudaStream_t>(stream_.ref().handle);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t instance = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    b.encode(on_);
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&instance, graph, 0), cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(instance, stream), cudaSuccess);
    EXPECT_EQ(b.found() == b.expected(), true);
    static_cast<void>(cudaGraphExecDestroy(instance));
    static_cast<void>(cudaGraphDestroy(graph));
  }
}

TEST_F(CudaLibrary, ReportsADamagedPayloadWhenTheHostWaitsAndOnlyOnceWhenItSynchronizes) {
  for (char const* const spec : {"onebit", "quant", "topk"}) {
    SCOPED_TRACE(spec);
    bucket b{spec, 2, 64, on_};
    b.encode(on_);
    b.payload.fetch();
    std::size_t const half = b.payload.host.size() / 2;
    b.payload.host.data()[half + 3] = std::byte{0xff};  // a negative scale, a header that is none
    b.payload.send();
    array out{b.gradient.host.size(), on_};
    b.codec.decode(on_, {b.payload.device.data(), b.payload.device.size()}, b.segments,
                   {out.device.data(), dtype::f32});
    event done;
    done.record(stream_.ref());
    auto const text = refusal(errc::corrupt_payload, [&] { done.wait(); });
    EXPECT_TRUE(contains(text, ("byte " + std::to_string(half)).c_str())) << text;
    EXPECT_EQ(refusal(errc::corrupt_payload, [&] { synchronize(stream_.ref()); }), text);
    EXPECT_NO_THROW(synchronize(stream_.ref()));
    out.fetch();
    EXPECT_FALSE(std::isnan(out.here<float>()[0]));
    EXPECT_TRUE(std::isnan(out.here<float>()[64]));
  }
}

TEST_F(CudaLibrary, FreesWhatItAllocates) {
  std::size_t const before = cuda_sim::count().live;
  for (char const* const spec : specs) {
    bucket b{spec, 60, 40, on_};
    b.encode(on_);
    synchronize(stream_.ref());
  }
  synchronize(stream_.ref());
  EXPECT_EQ(cuda_sim::count().live, before);
}

}  // namespace
}  // namespace gradwire::test
