#pragma once
// Whether the kernels compiled into this program run on a device.

#include <cuda_runtime_api.h>

namespace quench::cuda {

// cudaErrorNoKernelImageForDevice where they do not; another error where the device does not start. Makes a context on
// the device.
[[nodiscard]] cudaError_t probe_kernels(int device) noexcept;

}  // namespace quench::cuda
