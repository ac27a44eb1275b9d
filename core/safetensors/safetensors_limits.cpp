#include "core/safetensors/safetensors_limits.h"

#include <algorithm>
#include <array>

#include "core/json/json.h"
#include "core/safetensors/safetensors.h"
#include "core/system/utf8.h"

namespace quench {
namespace {

constexpr std::array<SafetensorsDType, 22> kDTypes{{
    {"BOOL", 8, DType::boolean},
    {"F4", 4, DType::f4_e2m1},
    {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},
    {"U8", 8, DType::u8},
    {"I8", 8, DType::i8},
    {"F8_E5M2", 8, DType::f8_e5m2},
    {"F8_E4M3", 8, DType::f8_e4m3},
    {"F8_E8M0", 8, DType::f8_e8m0},
    {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt},
    {"I16", 16, DType::i16},
    {"U16", 16, DType::u16},
    {"F16", 16, DType::f16},
    {"BF16", 16, DType::bf16},
    {"I32", 32, DType::i32},
    {"U32", 32, DType::u32},
    {"F32", 32, DType::f32},
    {"C64", 64, std::nullopt},
    {"F64", 64, DType::f64},
    {"I64", 64, DType::i64},
    {"U64", 64, DType::u64},
}};

}  // namespace

std::span<const SafetensorsDType> safetensors_dtypes() noexcept {
  return kDTypes;
}

const SafetensorsDType* find_safetensors_dtype(std::string_view name) noexcept {
  const auto row = std::find_if(kDTypes.begin(), kDTypes.end(), [&](const auto& r) { return r.name == name; });
  return row == kDTypes.end() ? nullptr : &*row;
}

std::string_view safetensors_name(DType dtype) {
  const auto row = std::find_if(kDTypes.begin(), kDTypes.end(), [&](const auto& r) { return r.dtype == dtype; });
  QUENCH_CHECK_AS(ErrorCode::unsupported, row != kDTypes.end(),
                  "safetensors has no dtype for {}; store its bytes as u8", to_string(dtype));
  return row->name;
}

std::string_view safetensors_name_problem(std::string_view name) noexcept {
  if (name.empty()) return "is empty";
  if (name.size() > kSafetensorsMaxNameBytes) return "is longer than 512 bytes";
  if (name == kSafetensorsMetadataKey) return "is reserved";
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7F; };
  if (std::any_of(name.begin(), name.end(), is_control)) return "has control characters";
  if (find_invalid_utf8(name) != std::string_view::npos) return "is not valid UTF-8";
  return {};
}

std::string_view to_string(SafetensorsFault fault) noexcept {
  switch (fault) {
    case SafetensorsFault::header_too_small: return "header too small";
    case SafetensorsFault::header_too_large: return "header too large";
    case SafetensorsFault::invalid_header_length: return "invalid header length";
    case SafetensorsFault::invalid_utf8: return "invalid UTF-8";
    case SafetensorsFault::invalid_start: return "invalid start";
    case SafetensorsFault::invalid_json: return "invalid JSON";
    case SafetensorsFault::duplicate_name: return "duplicate name";
    case SafetensorsFault::unknown_dtype: return "unknown dtype";
    case SafetensorsFault::invalid_shape: return "invalid shape";
    case SafetensorsFault::invalid_offset: return "invalid offset";
    case SafetensorsFault::size_overflow: return "size overflow";
    case SafetensorsFault::misaligned: return "misaligned";
    case SafetensorsFault::size_mismatch: return "size mismatch";
    case SafetensorsFault::incomplete_buffer: return "incomplete buffer";
    case SafetensorsFault::too_many_tensors: return "too many tensors";
    case SafetensorsFault::invalid_name: return "invalid name";
    case SafetensorsFault::invalid_metadata: return "invalid metadata";
    case SafetensorsFault::wrong_file_type: return "wrong file type";
  }
  return "unknown";
}

std::string in_quotes(std::string_view name) {
  return Json(shorten_utf8(name, 160)).dump();
}

}  // namespace quench
