#pragma once
// Whether a device multiplies float8 matrices.

#include "core/device/device.h"
#include "core/tensor/quant_tensor.h"

namespace quench::recipes {

// Returns on a GPU that multiplies float8 matrices with scales by tensor (compute capability 8.9 or higher) or by row
// (9.0; not every later one): it multiplies a small pair. Throws unsupported, naming what is missing and
// recipe.emulate, on another one. Nothing is asked of the CPU, which emulates, and of the meta device.
void require_float8_gemms(Device device, Granularity scales);

// The same as an answer, for scales by tensor; false for the CPU.
[[nodiscard]] bool has_float8_gemms(Device device);

// Whether float8 products of experts run on float8 tensor cores there (compute capability 9.0), on the CPU (true: it
// sums in f32), or would on the meta device's target (true).
[[nodiscard]] bool has_float8_experts(Device device);

// As require_float8_gemms, for blockwise products (compute capability 9.0).
void require_block_float8_gemms(Device device);

}  // namespace quench::recipes
