#pragma once

#include "core/device/device.h"
#include "core/tensor/quant_tensor.h"

namespace quench::recipes {

// Throws unsupported, naming recipe.emulate, unless the GPU runs float8 GEMMs with tensorwise (compute capability 8.9
// or higher) or rowwise scales (9.0; not all later ones). Probes with a small GEMM. No check for CPU and meta device.
void require_float8_gemms(Device device, Granularity scales);

// Tensorwise scales; false for the CPU.
[[nodiscard]] bool has_float8_gemms(Device device);

// Float8 grouped GEMMs (compute capability 9.0); true for the CPU (f32 accumulation) and the meta device.
[[nodiscard]] bool has_float8_experts(Device device);

// Block scaling (compute capability 9.0), as require_float8_gemms().
void require_block_float8_gemms(Device device);

}  // namespace quench::recipes
