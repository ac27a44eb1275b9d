#include "export/formats/bitsandbytes/quant_state.h"

#include <cmath>
#include <optional>

#include "core/json/json_member.h"
#include "core/system/check.h"

namespace quench {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 40, kMostBlock = std::int64_t{1} << 20;

std::int64_t size_of(const Json& state, std::string_view key, std::int64_t most, const std::string& source) {
  const Json* value = state.find(key);
  QUENCH_CHECK_AS(
      ErrorCode::corrupt, value != nullptr && value->is_integer() && value->as_int() > 0 && value->as_int() <= most,
      "{}: {} is {}, expected a positive integer", source, key, value == nullptr ? "missing" : value->dump());
  return value->as_int();
}

std::optional<DType> named_dtype(const std::string& name) {
  if (name == "float32") return DType::f32;
  if (name == "bfloat16") return DType::bf16;
  if (name == "float16") return DType::f16;
  return std::nullopt;
}

Shape shape_of(const Json& state, const std::string& source) {
  const Json* shape = state.find("shape");
  const bool matrix = shape != nullptr && shape->is_array() && shape->as_array().size() == 2;
  std::int64_t sizes[2] = {};
  for (std::size_t i = 0; matrix && i < 2; ++i) {
    const Json& size = shape->as_array()[i];
    if (size.is_integer() && size.as_int() < kMostElements) sizes[i] = size.as_int();
  }
  QUENCH_CHECK_AS(ErrorCode::corrupt, sizes[0] > 0 && sizes[1] > 0 && sizes[0] <= kMostElements / sizes[1],
                  "{}: shape is {}, expected two positive sizes", source, shape == nullptr ? "missing" : shape->dump());
  return {sizes[0], sizes[1]};
}

}  // namespace

QuantState parse_quant_state(std::string_view text, const std::string& source) {
  const Json state = Json::parse(text, {.source = source});
  QUENCH_CHECK_AS(ErrorCode::corrupt, state.is_object(), "{}: expected a JSON object", source);
  const std::string type = find_text(state, {"quant_type"}), dtype = find_text(state, {"dtype"});
  QUENCH_CHECK_AS(ErrorCode::unsupported, type == "nf4" || type == "fp4",
                  "{}: quant_type is '{}'; nf4 and fp4 are read", source, type);
  const auto known = named_dtype(dtype);
  QUENCH_CHECK_AS(ErrorCode::unsupported, known.has_value(),
                  "{}: dtype is '{}'; float32, bfloat16 and float16 are read", source, dtype);
  QuantState result{
      .shape = shape_of(state, source), .dtype = *known, .block = size_of(state, "blocksize", kMostBlock, source)};
  if (state.find("nested_blocksize") == nullptr) return result;
  result.nested_block = size_of(state, "nested_blocksize", kMostBlock, source);
  const Json* offset = state.find("nested_offset");
  QUENCH_CHECK_AS(ErrorCode::corrupt,
                  offset != nullptr && offset->is_number() && std::isfinite(static_cast<float>(offset->as_double())),
                  "{}: nested_offset is {}, expected a number", source, offset == nullptr ? "missing" : offset->dump());
  result.nested_offset = static_cast<float>(offset->as_double());
  return result;
}

}  // namespace quench
