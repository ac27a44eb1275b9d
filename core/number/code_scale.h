#pragma once
// Scales of 8-bit codes, one per tensor, row or column: encode scales of float8 (code = cast(x * scale)), decode scales
// of int8 (x ~ code * scale).

#include <type_traits>

#include "core/number/float8.h"
#include "core/number/int8_code.h"

namespace quench {

template <class Element>
inline constexpr bool kIsInt8 = std::is_same_v<Element, Int8Code>;

// Stored scale for values of dtype T. power_of_two: float8 only.
template <class Element, class T>
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float code_scale(float amax, bool power_of_two) noexcept {
  if constexpr (kIsInt8<Element>)
    return int8_scale<T>(amax);
  else
    return float8_scale(amax, Element::kMax, power_of_two);
}

// code = cast(x * encode_factor(scale)).
template <class Element>
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float encode_factor(float scale) noexcept {
  if constexpr (kIsInt8<Element>)
    return int8_encode_factor(scale);
  else
    return scale;
}

template <class Element>
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float decode_scaled(std::uint8_t code, float scale) noexcept {
  if constexpr (kIsInt8<Element>)
    return Int8Code::decode(code) * scale;
  else
    return Element::decode(code) / scale;
}

}  // namespace quench
