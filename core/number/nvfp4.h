#pragma once
// Scales of NVFP4 as TorchAO computes them for inference and quantization-aware training: blocks of 16 e2m1 codes with
// an e4m3 scale and, at two levels, one f32 scale for the whole tensor. All scales are decode multipliers.
// Every quotient below is one IEEE f32 division, in this order: results differ on decision points otherwise.

#include <cstdint>

#include "core/number/float4.h"
#include "core/number/float8.h"

namespace quench {

inline constexpr int kNvfp4BlockSize = 16;

// amax / (448 * 6). Where the multiplier of a zero block would overflow (amax below 5.1e-34, an all-zero tensor above
// all) it is 1: such a tensor gets zero codes, where TorchAO's formula gives NaN.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float nvfp4_global_scale(float amax) noexcept {
  const float scale = amax / (E4m3::kMax * E2m1::kMax);
  return scale <= 0x1p-122f ? 1.0f : scale;
}

struct Nvfp4BlockScale {
  std::uint8_t code;  // e4m3, at least 2^-6 (its smallest normal): never zero
  float multiplier;   // high precision -> e2m1
};

// clamp(t, 2^-6, 448) in e4m3; NaN stays NaN.
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
