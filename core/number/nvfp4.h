#pragma once
// NVFP4 scales as TorchAO's: blocks of 16 e2m1 values with an e4m3 decode scale, and an f32 global scale with two
// levels. Quotients are single IEEE f32 divisions in this order: rounding depends on it.

#include <cstdint>

#include "core/number/float4.h"
#include "core/number/float8.h"

namespace quench {

inline constexpr int kNvfp4BlockSize = 16;

// amax / (448 * 6); 1 where a zero block's multiplier would overflow (amax < 5.1e-34): values become 0 (TorchAO: NaN).
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float nvfp4_global_scale(float amax) noexcept {
  const float scale = amax / (E4m3::kMax * E2m1::kMax);
  return scale <= 0x1p-122f ? 1.0f : scale;
}

struct Nvfp4BlockScale {
  std::uint8_t code;  // e4m3, >= 2^-6
  float multiplier;   // encode scale
};

// clamp(value, 2^-6, 448); NaN stays NaN.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::uint8_t nvfp4_scale_code(float value) noexcept {
  return E4m3::encode(value < 0x1p-6f ? 0x1p-6f : value);
}

// One level: s = e4m3(amax / 6), multiplier 1 / s.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr Nvfp4BlockScale nvfp4_block_scale(float amax) noexcept {
  const std::uint8_t code = nvfp4_scale_code(amax / E2m1::kMax);
  return {code, 1.0f / E4m3::decode(code)};
}

// Two levels: s = e4m3((amax / 6) / global), multiplier (1 / global) / s.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr Nvfp4BlockScale nvfp4_block_scale(float amax, float global) noexcept {
  const std::uint8_t code = nvfp4_scale_code((amax / E2m1::kMax) / global);
  return {code, (1.0f / global) / E4m3::decode(code)};
}

}  // namespace quench
