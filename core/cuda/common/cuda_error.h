#pragma once
// CUDA errors with call, device and stream.

#include <cuda_runtime_api.h>

#include <string_view>

#include "core/device/device.h"

namespace quench::cuda {

// Throws out_of_memory for that status, else failed ("<what> on cuda:0, stream 0x...: <message> (<name>)").
void check(cudaError_t status, std::string_view what, Stream stream);
inline void check(cudaError_t status, std::string_view what, Device device) {
  check(status, what, Stream{device, nullptr});
}

[[nodiscard]] inline cudaStream_t native(Stream stream) noexcept {
  return static_cast<cudaStream_t>(stream.handle);
}
[[nodiscard]] inline cudaEvent_t native(Event event) noexcept {
  return static_cast<cudaEvent_t>(event.handle);
}

class DeviceGuard {
 public:
  explicit DeviceGuard(Device device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = -1;
};

}  // namespace quench::cuda
