#include "core/number/dtype.h"

#include <array>

namespace quench {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int bits;
  bool floating;
};

constexpr std::array<DTypeRow, 18> kDTypes{{
    {DType::f32, "f32", 32, true},
    {DType::f64, "f64", 64, true},
    {DType::f16, "f16", 16, true},
    {DType::bf16, "bf16", 16, true},
    {DType::f8_e4m3, "f8_e4m3", 8, true},
    {DType::f8_e5m2, "f8_e5m2", 8, true},
    {DType::f8_e8m0, "f8_e8m0", 8, true},
    {DType::f4_e2m1, "f4_e2m1", 4, true},
    {DType::i4, "i4", 4, false},
    {DType::i8, "i8", 8, false},
    {DType::u8, "u8", 8, false},
    {DType::i16, "i16", 16, false},
    {DType::u16, "u16", 16, false},
    {DType::i32, "i32", 32, false},
    {DType::u32, "u32", 32, false},
    {DType::i64, "i64", 64, false},
    {DType::u64, "u64", 64, false},
    {DType::boolean, "bool", 8, false},
}};

const DTypeRow& row(DType dtype) noexcept {
  return kDTypes[static_cast<std::size_t>(dtype)];
}

}  // namespace

int bit_width(DType dtype) noexcept {
  return row(dtype).bits;
}

std::int64_t byte_size(DType dtype) {
  QUENCH_CHECK(bit_width(dtype) >= 8, "byte_size: {} is packed, two elements a byte", to_string(dtype));
  return bit_width(dtype) / 8;
}

std::string_view to_string(DType dtype) noexcept {
  return row(dtype).name;
}

std::optional<DType> dtype_from_string(std::string_view name) noexcept {
  for (const DTypeRow& r : kDTypes)
    if (r.name == name) return r.dtype;
  if (name == "float32" || name == "float") return DType::f32;
  if (name == "float64" || name == "double") return DType::f64;
  if (name == "float16" || name == "half") return DType::f16;
  if (name == "bfloat16") return DType::bf16;
  return std::nullopt;
}

bool is_floating(DType dtype) noexcept {
  return row(dtype).floating;
}

}  // namespace quench
