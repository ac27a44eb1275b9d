// CUDA backend. The runtime is linked statically: the binary also starts without CUDA, with device_count() == 0.

#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <set>
#include <string>
#include <utility>

#include "core/cuda/common/cuda_error.h"
#include "core/cuda/common/growing_memory.h"
#include "core/cuda/common/kernel_image.h"
#include "core/cuda/common/launch.h"
#include "core/cuda/common/pinned.h"
#include "core/device/gpu_support.h"
#include "core/system/log.h"

namespace quench {
namespace {

using cuda::check;
using cuda::DeviceGuard;
using cuda::native;

// All devices up to the first that cannot run this build's kernels (the fastest come first).
struct Devices {
  int count = 0;
  std::string problem;  // for no, or no further, devices
  bool absent = false;  // no CUDA device
};

Devices find_devices() {
  int present = 0;
  const cudaError_t status = cudaGetDeviceCount(&present);
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    if (driver == 0) return {0, "this machine has no NVIDIA driver", true};
    return {0, old_driver_message(driver, CUDART_VERSION)};
  }
  if (status == cudaErrorNoDevice || (status == cudaSuccess && present == 0))
    return {0, "this machine has no CUDA device", true};
  if (status != cudaSuccess) return {0, fmt::format("CUDA does not start: {}", cudaGetErrorString(status))};
  Devices devices;
  std::set<std::pair<int, int>> known;  // capabilities with kernels; probed once each
  for (; devices.count < present; ++devices.count) {
    const int i = devices.count;
    cudaDeviceProp properties{};
    cudaError_t probed = cudaGetDeviceProperties(&properties, i);
    const std::pair capability{properties.major, properties.minor};
    if (probed == cudaSuccess && !known.contains(capability)) probed = cuda::probe_kernels(i).status;
    if (probed == cudaSuccess) {
      known.insert(capability);
      continue;
    }
    devices.problem =
        probed == cudaErrorNoKernelImageForDevice
            ? no_kernels_message(i, properties.name, 10 * properties.major + properties.minor)
            : fmt::format("device {} ({}) does not start: {}", i, properties.name, cudaGetErrorString(probed));
    break;
  }
  return devices;
}

// The probe is slow. Warns about unusable GPUs.
const Devices& devices() {
  static const Devices found = [] {
    Devices all = find_devices();
    if (!all.problem.empty() && !all.absent) QUENCH_LOG_WARN("{}", all.problem);
    return all;
  }();
  return found;
}

class CudaBackend final : public Backend {
 public:
  [[nodiscard]] int device_count() const override { return devices().count; }

  [[nodiscard]] std::string unavailable_reason() const override {
    return devices().count > 0 ? std::string() : devices().problem;
  }

  [[nodiscard]] std::string device_name(Device device) const override {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device.index), "cudaGetDeviceProperties", device);
    return properties.name;
  }

  [[nodiscard]] DeviceMemory memory(Device device) const override {
    const DeviceGuard guard(device);
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo", device);
    return {static_cast<std::int64_t>(free), static_cast<std::int64_t>(total)};
  }

  [[nodiscard]] ComputeCapability compute_capability(Device device) const override {
    return {cuda::compute_capability(device), cuda::code_capability(device)};
  }

  void* allocate(Device device, std::size_t bytes) override {
    const DeviceGuard guard(device);
    void* pointer = nullptr;
    const cudaError_t status = cudaMalloc(&pointer, bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // clears the non-sticky error
      return nullptr;
    }
    check(status, "cudaMalloc", device);
    return pointer;
  }

  void* allocate_behind(Device device, std::size_t bytes) override {
    return cuda::GrowingMemory::of(device).append(bytes);
  }

  void deallocate(Device device, void* pointer, std::size_t bytes) noexcept override {
    int previous = 0;
    cudaGetDevice(&previous);
    cudaSetDevice(device.index);
    cudaDeviceSynchronize();  // any stream may still use it
    if (!cuda::GrowingMemory::of(device).remove(pointer, bytes)) cudaFree(pointer);
    cudaSetDevice(previous);
  }

  void* allocate_pinned(Device device, std::size_t bytes) override { return cuda::allocate_pinned(device, bytes); }

  Stream create_stream(Device device) override {
    const DeviceGuard guard(device);
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags", device);
    return {device, stream};
  }
  void destroy_stream(Stream stream) noexcept override { cudaStreamDestroy(native(stream)); }
  void synchronize(Stream stream) override {
    const DeviceGuard guard(stream.device);
    check(cudaStreamSynchronize(native(stream)), "cudaStreamSynchronize", stream.device);
  }

  Event create_event(Device device) override {
    const DeviceGuard guard(device);
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags", device);
    return {device, event};
  }
  Event create_timing_event(Device device) override {
    const DeviceGuard guard(device);
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event), "cudaEventCreate", device);
    return {device, event};
  }
  [[nodiscard]] double elapsed_milliseconds(Event begin, Event end) override {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, native(begin), native(end)), "cudaEventElapsedTime", begin.device);
    return static_cast<double>(ms);
  }
  void destroy_event(Event event) noexcept override { cudaEventDestroy(native(event)); }
  void record(Event event, Stream stream) override {
    const DeviceGuard guard(stream.device);  // the default stream is the current device's
    check(cudaEventRecord(native(event), native(stream)), "cudaEventRecord", stream.device);
  }
  void wait(Stream stream, Event event) override {
    const DeviceGuard guard(stream.device);
    check(cudaStreamWaitEvent(native(stream), native(event), 0), "cudaStreamWaitEvent", stream.device);
  }
  [[nodiscard]] bool is_done(Event event) override {
    const cudaError_t status = cudaEventQuery(native(event));
    if (status == cudaErrorNotReady) {
      cudaGetLastError();  // clears it
      return false;
    }
    check(status, "cudaEventQuery", event.device);
    return true;
  }
  void synchronize(Event event) override {
    check(cudaEventSynchronize(native(event)), "cudaEventSynchronize", event.device);
  }

  bool begin_capture(Stream stream) override {
    const DeviceGuard guard(stream.device);
    // Relaxed: the allocator may call cudaMalloc.
    check(cudaStreamBeginCapture(native(stream), cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture", stream);
    return true;
  }
  Graph end_capture(Stream stream) override {
    const DeviceGuard guard(stream.device);
    cudaGraph_t captured = nullptr;
    check(cudaStreamEndCapture(native(stream), &captured), "cudaStreamEndCapture", stream);
    cudaGraphExec_t executable = nullptr;
    const cudaError_t status = cudaGraphInstantiate(&executable, captured, 0);
    cudaGraphDestroy(captured);
    check(status, "cudaGraphInstantiate", stream);
    return {stream.device, executable};
  }
  void launch(Graph graph, Stream stream) override {
    const DeviceGuard guard(stream.device);
    check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph.handle), native(stream)), "cudaGraphLaunch", stream);
  }
  void destroy_graph(Graph graph) noexcept override {
    cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph.handle));
  }

  void copy(void* to, Device to_device, const void* from, Device from_device, std::size_t bytes,
            Stream stream) override {
    const DeviceGuard guard(stream.device);
    if (!to_device.is_cpu() && !from_device.is_cpu() && to_device != from_device) {
      // Mapped memory is not peer-accessible.
      check(cudaMemcpyPeerAsync(to, to_device.index, from, from_device.index, bytes, native(stream)),
            "cudaMemcpyPeerAsync", stream.device);
      return;
    }
    const cudaMemcpyKind kind = to_device.is_cpu()     ? cudaMemcpyDeviceToHost
                                : from_device.is_cpu() ? cudaMemcpyHostToDevice
                                                       : cudaMemcpyDeviceToDevice;
    check(cudaMemcpyAsync(to, from, bytes, kind, native(stream)), "cudaMemcpyAsync", stream.device);
  }

  void fill_zero(void* pointer, std::size_t bytes, Stream stream) override {
    const DeviceGuard guard(stream.device);
    check(cudaMemsetAsync(pointer, 0, bytes, native(stream)), "cudaMemsetAsync", stream);
  }

  void range_begin(std::string_view name) override { nvtxRangePushA(std::string(name).c_str()); }
  void range_end() override { nvtxRangePop(); }
};

CudaBackend cuda_backend;
[[maybe_unused]] const bool registered = register_backend(DeviceType::cuda, &cuda_backend);

}  // namespace
}  // namespace quench
