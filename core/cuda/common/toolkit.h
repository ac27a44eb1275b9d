#pragma once
// Functions that differ between CUDA toolkits.

#include <cuda_runtime_api.h>

namespace quench::cuda {

// Entry point of a driver function in the API of CUDA 12.0; nullptr if the driver lacks it. At run time: the binary
// starts without a driver.
inline void* driver_entry(const char* name) noexcept {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  constexpr unsigned kApiVersion = 12000;
  const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &entry, kApiVersion, cudaEnableDefault, &result);
#else
  const cudaError_t status = cudaGetDriverEntryPoint(name, &entry, cudaEnableDefault, &result);
#endif
  if (status == cudaSuccess && result == cudaDriverEntryPointSuccess) return entry;
  cudaGetLastError();
  return nullptr;
}

}  // namespace quench::cuda
