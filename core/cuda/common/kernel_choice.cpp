#include "core/cuda/common/kernel_choice.h"

#include "core/cuda/common/cuda_error.h"

namespace quench::cuda {

void note_kernel_family(KernelFamily family, void* result, std::size_t bytes, Stream stream) {
  count_kernel_family(family);
  if (!broken_kernel_families().contains(family)) [[likely]]
    return;
  const DeviceGuard guard(stream.device);
  check(cudaMemsetAsync(result, 0xFF, bytes, native(stream)), "cudaMemsetAsync", stream);
}

}  // namespace quench::cuda
