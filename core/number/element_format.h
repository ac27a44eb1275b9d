#pragma once
// Element formats of quantized tensors, and their dispatch.

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/number/dtype.h"
#include "core/number/float4.h"
#include "core/number/float6.h"
#include "core/number/float8.h"
#include "core/number/int8_code.h"
#include "core/system/check.h"

namespace quench {

// Element of a quantized tensor.
enum class ElementFormat : std::uint8_t {
  e4m3,
  e5m2,
  e2m3,  // one per byte
  e3m2,  // one per byte
  e2m1,  // two per byte
  int8,
};
// Number of element formats.
inline constexpr int kElementFormatCount = 6;

[[nodiscard]] std::string_view to_string(ElementFormat format) noexcept;
// Inverse of to_string().
[[nodiscard]] std::optional<ElementFormat> element_format_from_string(std::string_view name) noexcept;
// DType of the codes; u8 for 6-bit formats.
[[nodiscard]] DType payload_dtype(ElementFormat format) noexcept;
// e4m3, e5m2 or int8: formats with one scale per tensor, row or column (quantize.h), int8 by row or column.
[[nodiscard]] bool is_8_bit(ElementFormat format) noexcept;

// ElementFormat of an element class (float8.h, float6.h, float4.h, int8_code.h).
template <class Element>
struct ElementFormatOf;
template <>
struct ElementFormatOf<E4m3> {
  static constexpr ElementFormat value = ElementFormat::e4m3;
};
template <>
struct ElementFormatOf<E5m2> {
  static constexpr ElementFormat value = ElementFormat::e5m2;
};
template <>
struct ElementFormatOf<E2m3> {
  static constexpr ElementFormat value = ElementFormat::e2m3;
};
template <>
struct ElementFormatOf<E3m2> {
  static constexpr ElementFormat value = ElementFormat::e3m2;
};
template <>
struct ElementFormatOf<E2m1> {
  static constexpr ElementFormat value = ElementFormat::e2m1;
};
template <>
struct ElementFormatOf<Int8Code> {
  static constexpr ElementFormat value = ElementFormat::int8;
};

// Calls body.template operator()<Element>(); throws unsupported naming op and format outside Elements.
template <class... Elements, class Body>
void dispatch_element(ElementFormat format, std::string_view op, Body&& body) {
  const bool matched =
      ((format == ElementFormatOf<Elements>::value ? (body.template operator()<Elements>(), true) : false) || ...);
  if (!matched) QUENCH_FAIL(ErrorCode::unsupported, "{}: element format {} is not supported", op, to_string(format));
}

}  // namespace quench
