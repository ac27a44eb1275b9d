#pragma once
// Probe for a device's kernels.

#include <cuda_runtime_api.h>

namespace quench::cuda {

// cudaErrorNoKernelImageForDevice without kernels, other errors if the device fails to start. Creates a context.
[[nodiscard]] cudaError_t probe_kernels(int device) noexcept;

}  // namespace quench::cuda
