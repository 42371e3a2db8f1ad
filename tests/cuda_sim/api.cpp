// The CUDA runtime's functions over the simulated machine.
#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/cuda_sim/device.hpp"
#include "tests/cuda_sim/sanitizer.hpp"

using cuda_sim::fault;
using cuda_sim::machine;
using cuda_sim::operation;
using cuda_sim::work_kind;

namespace {

thread_local int current_device = 0;

// The lock of one call of the API.
class call {
 public:
  call() : lock{all.mutex} { all.held = &lock; }
  machine& all = machine::instance();
  std::unique_lock<std::mutex> lock;
};

cuda_sim::event& event_of(cudaEvent_t handle) { return *reinterpret_cast<cuda_sim::event*>(handle); }

operation device_work(char const* name, std::function<void()> work) {
  operation made{work_kind::device, name, {}, std::move(work), {}, 0, {}, {}};
  return made;
}

void check_device_range(machine& all, void const* pointer, std::size_t bytes, char const* what) {
  cuda_sim::allocation const* const found = all.memory.find(pointer);
  if (found == nullptr) fault("%s is host memory: device memory is due", what);
  auto const offset = static_cast<std::size_t>(static_cast<std::byte const*>(pointer) - found->data);
  if (bytes > found->bytes - offset) {
    fault("%s runs %zu bytes past the end of an allocation of %zu bytes", what, bytes - (found->bytes - offset),
          found->bytes);
  }
}

// The host's side of a copy.
void check_host_range(machine& all, void const* pointer, char const* what) {
  cuda_sim::allocation const* const found = all.memory.find(pointer);
  if (found == nullptr)
    fault("%s is pageable host memory: the copy would wait for the device; use pinned memory", what);
  if (!found->pinned) fault("%s is device memory: host memory is due", what);
}

}  // namespace

cudaError_t cudaGetLastError() { return cudaSuccess; }

char const* cudaGetErrorName(cudaError_t code) {
  switch (code) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
  }
  return "an unknown error";
}

char const* cudaGetErrorString(cudaError_t code) {
  switch (code) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
  }
  return "an unknown error";
}

// ---- Devices

cudaError_t cudaGetDeviceCount(int* count) {
  *count = call{}.all.options.devices;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= call{}.all.options.devices) return cudaErrorInvalidDevice;
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = 2; return cudaSuccess;  // few: grids have to stride
    case cudaDevAttrComputeCapabilityMajor: *value = 9; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; return cudaSuccess;
  }
  return cudaErrorInvalidValue;
}

// ---- Streams and events

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  call now;
  auto made = std::make_unique<cuda_sim::stream>();
  made->device = current_device;
  made->number = now.all.streams.empty() ? 0 : now.all.streams.back()->number + 1;
  made->priority = made->number;
  made->tsan = cuda_sim::sanitizer::new_thread();
  *stream = reinterpret_cast<cudaStream_t>(made.get());
  now.all.streams.push_back(std::move(made));
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  call now;
  cuda_sim::stream& one = now.all.find(stream, "cudaStreamDestroy");
  now.all.wait(now.lock, one, [&] { return one.queue.empty(); });
  if (one.tsan != nullptr) cuda_sim::sanitizer::end_thread(one.tsan);
  std::erase_if(now.all.streams, [&](auto const& each) { return each.get() == &one; });
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  call now;
  cuda_sim::stream& one = now.all.find(stream, "cudaStreamSynchronize");
  now.all.refuse_in_capture("cudaStreamSynchronize");
  ++now.all.counts.synchronous;
  now.all.wait(now.lock, one, [&] { return one.queue.empty(); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new cuda_sim::event);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &event_of(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  call now;
  cuda_sim::stream& one = now.all.find(stream, "cudaEventRecord");
  auto const point = std::make_shared<cuda_sim::point>();
  point->in = &one;
  event_of(event).last = point;
  now.all.push(one, {work_kind::record, "record", {}, {}, point, 0, {}, {}});
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  call now;
  cuda_sim::stream& one = now.all.find(stream, "cudaStreamWaitEvent");
  auto const point = event_of(event).last;
  if (point == nullptr) fault("cudaStreamWaitEvent: the event was never recorded, so the wait does nothing");
  now.all.push(one, {work_kind::wait, "wait", {}, {}, point, 0, {}, {}});
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  call now;
  auto const point = event_of(event).last;
  ++now.all.counts.synchronous;
  if (point == nullptr) return cudaSuccess;
  if (!point->reached) now.all.look(*point->in);
  if (!point->reached) return cudaErrorNotReady;
  cuda_sim::sanitizer::acquire(point.get());
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  call now;
  auto const point = event_of(event).last;
  now.all.refuse_in_capture("cudaEventSynchronize");
  ++now.all.counts.synchronous;
  if (point == nullptr) return cudaSuccess;
  if (!point->reached) now.all.wait(now.lock, *point->in, [&] { return point->reached; });
  cuda_sim::sanitizer::acquire(point.get());
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* user) {
  call now;
  cuda_sim::stream& one = now.all.find(stream, "cudaLaunchHostFunc");
  now.all.push(one, {work_kind::host, "host function", {}, [=] { function(user); }, {}, 0, {}, {}});
  return cudaSuccess;
}

// ---- Memory

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  call now;
  now.all.refuse_in_capture("cudaMalloc");
  ++now.all.counts.synchronous;
  *pointer = now.all.memory.allocate(bytes, current_device, cuda_sim::life::live, now.all.options.memory);
  return *pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  call now;
  now.all.refuse_in_capture("cudaFree");
  ++now.all.counts.synchronous;
  cuda_sim::allocation const* const found = now.all.memory.find(pointer);
  if (found == nullptr || found->pinned || found->data != pointer) {
    fault("cudaFree: %p was not given by cudaMalloc", pointer);
  }
  // It waits for the whole device.
  for (std::size_t i = 0; i < now.all.streams.size(); ++i) {
    cuda_sim::stream& one = *now.all.streams[i];
    if (one.device == found->device) now.all.wait(now.lock, one, [&] { return one.queue.empty(); });
  }
  now.all.memory.set_life(static_cast<std::byte*>(pointer), cuda_sim::life::freed);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  call now;
  now.all.refuse_in_capture("cudaHostAlloc");
  *pointer = now.all.memory.allocate_pinned(bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* pointer) {
  call now;
  now.all.refuse_in_capture("cudaFreeHost");
  if (pointer != nullptr) now.all.memory.release_pinned(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, cudaMemPoolProps const* properties) {
  if (properties->location.id < 0 || properties->location.id >= call{}.all.options.devices)
    return cudaErrorInvalidDevice;
  *pool = reinterpret_cast<cudaMemPool_t>(new int{properties->location.id});
  return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  delete reinterpret_cast<int*>(pool);
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }

cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t stream) {
  call now;
  cuda_sim::stream& one = now.all.find(stream, "cudaMallocAsync");
  if (bytes == 0) return cudaErrorInvalidValue;
  std::byte* const data = now.all.memory.allocate(bytes, one.device, cuda_sim::life::promised, now.all.options.memory);
  *pointer = data;
  if (data == nullptr) return cudaErrorMemoryAllocation;
  ++now.all.counts.allocations;
  now.all.push(one, device_work("malloc", [data, &all = now.all] { all.memory.set_life(data, cuda_sim::life::live); }));
  return cudaSuccess;
}

cudaError_t cudaMallocFromPoolAsync(void** pointer, std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  if (int const device = call{}.all.find(stream, "cudaMallocFromPoolAsync").device;
      *reinterpret_cast<int*>(pool) != device) {
    fault("cudaMallocFromPoolAsync: the pool is of device %d, the stream of device %d", *reinterpret_cast<int*>(pool),
          device);
  }
  return cudaMallocAsync(pointer, bytes, stream);
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  call now;
  cuda_sim::stream& one = now.all.find(stream, "cudaFreeAsync");
  cuda_sim::allocation const* const found = now.all.memory.find(pointer);
  if (found == nullptr || found->pinned || found->data != pointer) {
    fault("cudaFreeAsync: %p is no allocation of device memory, or was freed before", pointer);
  }
  now.all.push(one, device_work("free", [data = found->data, &all = now.all] {
                 if (all.memory.find(data)->life == cuda_sim::life::freed) fault("device memory is freed twice");
                 all.memory.set_life(data, cuda_sim::life::freed);
               }));
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, void const* from, std::size_t bytes, cudaMemcpyKind direction,
                            cudaStream_t stream) {
  call now;
  cuda_sim::stream& one = now.all.find(stream, "cudaMemcpyAsync");
  bool const from_device = direction != cudaMemcpyHostToDevice;
  bool const to_device = direction != cudaMemcpyDeviceToHost;
  if (from_device) check_device_range(now.all, from, bytes, "cudaMemcpyAsync: the source");
  if (to_device) check_device_range(now.all, to, bytes, "cudaMemcpyAsync: the destination");
  if (!from_device) check_host_range(now.all, from, "cudaMemcpyAsync: the source");
  if (!to_device) check_host_range(now.all, to, "cudaMemcpyAsync: the destination");
  ++now.all.counts.copies;
  now.all.push(one, device_work("copy", [=] { std::memcpy(to, from, bytes); }));
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  call now;
  cuda_sim::stream& one = now.all.find(stream, "cudaMemsetAsync");
  check_device_range(now.all, to, bytes, "cudaMemsetAsync: the destination");
  ++now.all.counts.copies;
  now.all.push(one, device_work("set", [=] { std::memset(to, value, bytes); }));
  return cudaSuccess;
}

// ---- Graphs

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  call now;
  now.all.find(stream, "cudaStreamBeginCapture").captured.emplace();
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  call now;
  cuda_sim::stream& one = now.all.find(stream, "cudaStreamEndCapture");
  *graph = reinterpret_cast<cudaGraph_t>(new cuda_sim::graph{std::move(*one.captured)});
  one.captured.reset();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* instance, cudaGraph_t graph, unsigned long long) {
  *instance = reinterpret_cast<cudaGraphExec_t>(new cuda_sim::graph{*reinterpret_cast<cuda_sim::graph*>(graph)});
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t instance, cudaStream_t stream) {
  call now;
  now.all.launch_graph(now.all.find(stream, "cudaGraphLaunch"), *reinterpret_cast<cuda_sim::graph*>(instance));
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t instance) {
  delete reinterpret_cast<cuda_sim::graph*>(instance);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<cuda_sim::graph*>(graph);
  return cudaSuccess;
}
