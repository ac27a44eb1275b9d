// NVIDIA GPUs through the CUDA runtime: memory, streams, events, copies.
//
// The runtime library is linked statically, so that one binary runs on machines without CUDA; there device_count() is
// 0 and nothing else is ever called.

#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <string>

#include "core/cuda/cuda_error.h"
#include "core/cuda/kernel_image.h"

namespace quench {
namespace {

using cuda::check;
using cuda::DeviceGuard;
using cuda::native;

// Empty when the devices, `*count` of them, can run this build's kernels.
std::string device_problem(int* count) {
  const cudaError_t status = cudaGetDeviceCount(count);
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    if (driver == 0) return "this machine has no NVIDIA driver";
    return fmt::format("the NVIDIA driver supports CUDA {}.{}, this build needs {}.{}; update the driver",
                       driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  }
  if (status == cudaErrorNoDevice || (status == cudaSuccess && *count == 0)) return "this machine has no CUDA device";
  if (status != cudaSuccess) return fmt::format("CUDA does not start: {}", cudaGetErrorString(status));
  for (int i = 0; i < *count; ++i) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
    if (!cuda::has_kernels_for(i))
      return fmt::format(
          "device {} ({}) has compute capability {}.{}, for which this build has no kernels; build "
          "with -DCMAKE_CUDA_ARCHITECTURES={}{}",
          i, properties.name, properties.major, properties.minor, properties.major, properties.minor);
  }
  return {};
}

class CudaBackend final : public Backend {
 public:
  [[nodiscard]] int device_count() const override {
    int count = 0;
    return device_problem(&count).empty() ? count : 0;
  }

  [[nodiscard]] std::string unavailable_reason() const override {
    int count = 0;
    return device_problem(&count);
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

  void* allocate(Device device, std::size_t bytes) override {
    const DeviceGuard guard(device);
    void* pointer = nullptr;
    const cudaError_t status = cudaMalloc(&pointer, bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // the error is not sticky; clear it so that later calls do not report it
      return nullptr;
    }
    check(status, "cudaMalloc", device);
    return pointer;
  }

  void deallocate(Device device, void* pointer, std::size_t) noexcept override {
    int previous = 0;
    cudaGetDevice(&previous);
    cudaSetDevice(device.index);
    cudaFree(pointer);
    cudaSetDevice(previous);
  }

  void* allocate_pinned(Device device, std::size_t bytes) override {
    const DeviceGuard guard(device);
    void* pointer = nullptr;
    const cudaError_t status = cudaMallocHost(&pointer, bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    check(status, "cudaMallocHost", device);
    return pointer;
  }

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
    check(cudaEventRecord(native(event), native(stream)), "cudaEventRecord", stream.device);
  }
  void wait(Stream stream, Event event) override {
    check(cudaStreamWaitEvent(native(stream), native(event), 0), "cudaStreamWaitEvent", stream.device);
  }
  [[nodiscard]] bool is_done(Event event) override {
    const cudaError_t status = cudaEventQuery(native(event));
    if (status == cudaErrorNotReady) return false;
    check(status, "cudaEventQuery", event.device);
    return true;
  }
  void synchronize(Event event) override {
    check(cudaEventSynchronize(native(event)), "cudaEventSynchronize", event.device);
  }

  void copy(void* to, Device to_device, const void* from, Device from_device, std::size_t bytes,
            Stream stream) override {
    const DeviceGuard guard(stream.device);
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
