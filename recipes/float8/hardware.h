#pragma once
// Execution of float8 and int8 GEMMs by device.

#include <string>

#include "core/device/device.h"
#include "recipes/recipe.h"

namespace quench::recipes {

enum class GemmPath : std::uint8_t {
  native,    // tensor cores of the format
  fallback,  // the same quantized values on bf16 tensor cores, f32 accumulators
  emulated,  // f32 GEMMs of dequantized values
};

// native for the meta device and for a GPU that this machine lacks (planning); emulated for the CPU.
[[nodiscard]] GemmPath float8_path(Device device, Float8GemmKind kind);

// Tensorwise scales, natively.
[[nodiscard]] bool has_float8_gemms(Device device);

// Line of the start report; empty for a recipe without GEMMs of 8-bit codes.
[[nodiscard]] std::string describe_float8_path(const Recipe& recipe, bool emulate, Device device);

// Dense MXFP8 GEMMs: native on block-scaled tensor cores; fallback also for the meta device and for a GPU that this
// machine lacks (planning); emulated for the CPU.
[[nodiscard]] GemmPath mxfp8_path(Device device);

// Line of the start report; empty for a recipe without MXFP8 GEMMs.
[[nodiscard]] std::string describe_mxfp8_path(const Recipe& recipe, bool emulate, Device device);

}  // namespace quench::recipes
