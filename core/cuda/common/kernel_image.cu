#include "core/cuda/common/kernel_image.h"

#include <cuda_runtime.h>

namespace quench::cuda {
namespace {

__global__ void probe_kernel() {}

}  // namespace

KernelImage probe_kernels(int device) noexcept {
  int previous = 0;
  cudaGetDevice(&previous);
  cudaError_t status = cudaSetDevice(device);
  cudaFuncAttributes attributes{};
  if (status == cudaSuccess) status = cudaFuncGetAttributes(&attributes, probe_kernel);
  cudaGetLastError();
  cudaSetDevice(previous);
  return {status == cudaErrorInvalidDeviceFunction ? cudaErrorNoKernelImageForDevice : status, attributes.ptxVersion};
}

}  // namespace quench::cuda
