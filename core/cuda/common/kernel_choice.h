#pragma once
// Choice between a kernel family and its fallback (core/device/kernel_families.h).

#include "core/device/kernel_families.h"
#include "core/tensor/tensor.h"

namespace quench::cuda {

// After a launch of the family: counts it. Test hook: overwrites `bytes` of the result with NaN patterns if the family
// is broken.
void note_kernel_family(KernelFamily family, void* result, std::size_t bytes, Stream stream);

// Whether the family is on and took the call: `run` returns false without a launch. `result`: contiguous rows.
template <class Run>
[[nodiscard]] bool run_kernel_family(KernelFamily family, const Tensor& result, const Run& run) {
  if (!kernel_family_enabled(family) || !run()) return false;
  note_kernel_family(family, result.raw_data(), result.nbytes(), current_stream(result.device()));
  return true;
}

}  // namespace quench::cuda
