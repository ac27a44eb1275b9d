#pragma once
// Probe for a device's kernels.

#include <cuda_runtime_api.h>

namespace quench::cuda {

struct KernelImage {
  cudaError_t status;  // cudaErrorNoKernelImageForDevice without kernels, other errors if the device fails to start
  int capability = 0;  // compute capability that the loaded code, or the PTX it comes from, was compiled for: 90
};

// Creates a context.
[[nodiscard]] KernelImage probe_kernels(int device) noexcept;

}  // namespace quench::cuda
