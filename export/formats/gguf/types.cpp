#include "export/formats/gguf/types.h"

#include <algorithm>
#include <array>

#include "core/system/check.h"

namespace quench {
namespace {

struct PlainType {
  DType dtype;
  std::string_view name;
  std::uint32_t type, file_type;
};
constexpr std::array kPlain = {PlainType{DType::f32, "F32", 0, 0}, PlainType{DType::f16, "F16", 1, 1},
                               PlainType{DType::bf16, "BF16", 30, 32}};

// Not readable here.
struct OtherType {
  std::uint32_t type;
  std::string_view name;
};
constexpr std::array kOthers = {OtherType{9, "Q8_1"}, OtherType{24, "I8"},  OtherType{25, "I16"}, OtherType{26, "I32"},
                                OtherType{27, "I64"}, OtherType{28, "F64"}, OtherType{41, "Q1_0"}};

}  // namespace

std::optional<GgufTypeLayout> gguf_type_layout(std::uint32_t type) {
  for (const PlainType& plain : kPlain)
    if (plain.type == type)
      return GgufTypeLayout{plain.dtype, std::nullopt, 1, static_cast<std::uint64_t>(byte_size(plain.dtype)),
                            plain.file_type};
  for (const BlockFormat& blocks : block_formats())
    if (blocks.ggml_type == type)
      return GgufTypeLayout{std::nullopt, blocks.type, static_cast<std::uint64_t>(blocks.elements),
                            static_cast<std::uint64_t>(blocks.bytes), blocks.file_type};
  return std::nullopt;
}

std::uint32_t gguf_type_of(DType dtype) {
  const auto* found = std::ranges::find(kPlain, dtype, &PlainType::dtype);
  QUENCH_CHECK(found != kPlain.end(), "ggml has no type for {} here", to_string(dtype));
  return found->type;
}

std::string gguf_type_name(std::uint32_t type) {
  for (const PlainType& plain : kPlain)
    if (plain.type == type) return std::string(plain.name);
  for (const BlockFormat& blocks : block_formats())
    if (blocks.ggml_type == type) return std::string(blocks.name);
  const auto* found = std::ranges::find(kOthers, type, &OtherType::type);
  return found == kOthers.end() ? fmt::format("{} of ggml", type) : std::string(found->name);
}

std::string gguf_type_names() {
  std::string names;
  for (const PlainType& plain : kPlain) names += fmt::format("{}, ", plain.name);
  for (const BlockFormat& blocks : block_formats()) names += fmt::format("{}, ", blocks.name);
  return names.substr(0, names.size() - 2);
}

}  // namespace quench
