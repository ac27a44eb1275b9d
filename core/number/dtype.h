#pragma once
// Tensor dtypes and their dispatch.

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/number/float_types.h"
#include "core/system/check.h"

namespace quench {

// Element type of a tensor.
enum class DType : std::uint8_t {
  f32,
  f64,
  f16,
  bf16,
  f8_e4m3,  // OCP e4m3fn: no infinities, max 448
  f8_e5m2,  // OCP e5m2: infinities, max 57344
  f8_e8m0,  // OCP: power of two, bias 127, 255 = NaN
  f4_e2m1,  // two per byte along the last axis, even index low
  i4,       // packed likewise
  i8,
  u8,
  i16,
  u16,
  i32,
  u32,
  i64,
  u64,
  boolean,
};

// 4 for packed types.
[[nodiscard]] int bit_width(DType dtype) noexcept;
// Packed types are invalid.
[[nodiscard]] std::int64_t byte_size(DType dtype);
[[nodiscard]] std::string_view to_string(DType dtype) noexcept;
// Also long names (float32, bfloat16).
[[nodiscard]] std::optional<DType> dtype_from_string(std::string_view name) noexcept;
// True for every floating-point type, packed ones and f8_e8m0 included.
[[nodiscard]] bool is_floating(DType dtype) noexcept;

// DType of a C++ type.
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<float16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<bfloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<float8_e4m3> {
  static constexpr DType value = DType::f8_e4m3;
};
template <>
struct DTypeOf<float8_e5m2> {
  static constexpr DType value = DType::f8_e5m2;
};
template <>
struct DTypeOf<float8_e8m0> {
  static constexpr DType value = DType::f8_e8m0;
};
template <>
struct DTypeOf<std::int8_t> {
  static constexpr DType value = DType::i8;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct DTypeOf<std::int16_t> {
  static constexpr DType value = DType::i16;
};
template <>
struct DTypeOf<std::uint16_t> {
  static constexpr DType value = DType::u16;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<std::uint32_t> {
  static constexpr DType value = DType::u32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<std::uint64_t> {
  static constexpr DType value = DType::u64;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::boolean;
};

// DType of a C++ type.
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

// Calls body.template operator()<T>(); throws unsupported naming op and dtype outside Types.
template <class... Types, class Body>
decltype(auto) dispatch(DType dtype, std::string_view op, Body&& body) {
  using Result = decltype((body.template operator()<Types>(), ...));
  if constexpr (std::is_void_v<Result>) {
    const bool matched = ((dtype == dtype_of<Types> ? (body.template operator()<Types>(), true) : false) || ...);
    if (!matched) QUENCH_FAIL(ErrorCode::unsupported, "{}: dtype {} is not supported", op, to_string(dtype));
  } else {
    std::optional<Result> result;
    ((dtype == dtype_of<Types> ? (result.emplace(body.template operator()<Types>()), true) : false) || ...);
    if (!result) QUENCH_FAIL(ErrorCode::unsupported, "{}: dtype {} is not supported", op, to_string(dtype));
    return Result(*std::move(result));
  }
}

}  // namespace quench
