#pragma once
// Whether a device multiplies float8 matrices.

#include "core/device.h"

namespace quench::recipes {

// Returns on a GPU with float8 tensor cores (compute capability 8.9 or higher). Throws unsupported naming the
// capability and recipe.emulate on another one. Nothing is asked of the CPU, which emulates, and of the planning
// device.
void require_float8_products(Device device);

// The same as an answer; false for the CPU.
[[nodiscard]] bool has_float8_products(Device device);

}  // namespace quench::recipes
