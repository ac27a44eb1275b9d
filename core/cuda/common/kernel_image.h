#pragma once
// Probe for kernels compiled for a device.

#include <cuda_runtime_api.h>

namespace quench::cuda {

// cudaErrorNoKernelImageForDevice if there are none; another error if the device fails to start. Creates a context.
[[nodiscard]] cudaError_t probe_kernels(int device) noexcept;

}  // namespace quench::cuda
