#include "core/cuda/kernel_image.h"

#include <cuda_runtime.h>

namespace quench::cuda {
namespace {

__global__ void probe_kernel() {}

}  // namespace

bool has_kernels_for(int device) noexcept {
  int previous = 0;
  cudaGetDevice(&previous);
  if (cudaSetDevice(device) != cudaSuccess) return false;
  cudaFuncAttributes attributes{};
  const bool found = cudaFuncGetAttributes(&attributes, probe_kernel) == cudaSuccess;
  cudaGetLastError();
  cudaSetDevice(previous);
  return found;
}

}  // namespace quench::cuda
