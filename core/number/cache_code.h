#pragma once
// 8-bit codes of cached keys and values under decode scales: value = code * scale. Element: E4m3 or Int8Code.

#include <cstdint>

#include "core/number/float8.h"
#include "core/number/int8_code.h"

namespace quench {

// amax / largest code; 1 for 0. NaN and infinity are kept.
template <class Element>
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float cache_scale(float amax) noexcept {
  const float scale = amax / Element::kMax;
  return scale == 0.0f ? 1.0f : scale;
}

// To nearest even, saturating. NaN: NaN with E4m3, 0 with Int8Code.
template <class Element>
[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::uint8_t cache_code(float value, float scale) noexcept {
  return Element::encode(value / scale);
}

template <class Element>
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float cached_value(std::uint8_t code, float scale) noexcept {
  return Element::decode(code) * scale;
}

}  // namespace quench
