#include "core/number/element_format.h"

#include <array>

namespace quench {
namespace {

struct ElementRow {
  std::string_view name;
  DType payload;
};

constexpr std::array<ElementRow, kElementFormatCount> kElements{{
    {"e4m3", DType::f8_e4m3},
    {"e5m2", DType::f8_e5m2},
    {"e2m3", DType::u8},
    {"e3m2", DType::u8},
    {"e2m1", DType::f4_e2m1},
    {"int8", DType::i8},
}};

}  // namespace

std::string_view to_string(ElementFormat format) noexcept {
  return kElements[static_cast<std::size_t>(format)].name;
}

std::optional<ElementFormat> element_format_from_string(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kElements.size(); ++i)
    if (kElements[i].name == name) return static_cast<ElementFormat>(i);
  return std::nullopt;
}

DType payload_dtype(ElementFormat format) noexcept {
  return kElements[static_cast<std::size_t>(format)].payload;
}

bool is_8_bit(ElementFormat format) noexcept {
  return format == ElementFormat::e4m3 || format == ElementFormat::e5m2 || format == ElementFormat::int8;
}

}  // namespace quench
