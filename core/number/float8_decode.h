#pragma once
// e4m3 under the decode scales of post-training quantization: value = code * scale.

#include "core/number/float8.h"
#include "core/number/float_types.h"

namespace quench {

// amax / 448 rounded to bf16 or not; 1 for an amax of 0. Infinite for an infinite amax, NaN for NaN.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float float8_decode_scale(float amax, bool to_bf16) noexcept {
  const float scale = amax / E4m3::kMax;
  const float stored = to_bf16 ? static_cast<float>(bfloat16(scale)) : scale;
  return stored == 0.0f ? 1.0f : stored;
}

// x as it comes back from its code.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float through_e4m3(float x, float scale) noexcept {
  return E4m3::decode(E4m3::encode(x / scale)) * scale;
}

}  // namespace quench
