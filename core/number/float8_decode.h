#pragma once
// e4m3 with PTQ decode scales: value = code * scale.

#include "core/number/float8.h"
#include "core/number/float_types.h"

namespace quench {

// amax / 448, optionally in bf16; 1 for amax 0; Inf and NaN propagate.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float float8_decode_scale(float amax, bool to_bf16) noexcept {
  const float scale = amax / E4m3::kMax;
  const float stored = to_bf16 ? static_cast<float>(bfloat16(scale)) : scale;
  return stored == 0.0f ? 1.0f : stored;
}

[[nodiscard]] QUENCH_HOST_DEVICE constexpr float through_e4m3(float x, float scale) noexcept {
  return E4m3::decode(E4m3::encode(x / scale)) * scale;
}

}  // namespace quench
