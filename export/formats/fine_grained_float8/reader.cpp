#include "export/formats/fine_grained_float8/reader.h"

#include "core/system/check.h"
#include "export/formats/float8_weights.h"

namespace quench {
namespace {

// 0: none.
std::int64_t block_side(const Json& quantization, const std::string& source) {
  constexpr std::int64_t kMost = 4096;
  const Json* block = quantization.find("weight_block_size");
  if (block == nullptr || block->is_null()) return 0;
  const Json* side = block->is_array() && block->as_array().size() == 2 ? &block->as_array()[0] : nullptr;
  QUENCH_CHECK_AS(ErrorCode::unsupported,
                  side != nullptr && side->is_integer() && *side == block->as_array()[1] && side->as_int() > 0 &&
                      side->as_int() <= kMost,
                  "{}: {}.weight_block_size is {}; square blocks, as [128, 128], and null can be read", source,
                  kQuantizationConfig, block->dump());
  return side->as_int();
}

}  // namespace

std::unique_ptr<StoredWeights> open_fine_grained_float8(const std::filesystem::path& folder, const Json& quantization) {
  const std::string source = (folder / "config.json").string();
  const std::int64_t block = block_side(quantization, source);
  const Json* inputs = quantization.find("activation_scheme");
  const bool static_inputs = inputs != nullptr && *inputs == Json("static");
  QUENCH_CHECK_AS(ErrorCode::unsupported, static_inputs || inputs == nullptr || *inputs == Json("dynamic"),
                  "{}: {}.activation_scheme is {}; dynamic and static can be read", source, kQuantizationConfig,
                  inputs->dump());
  const Json* format = quantization.find("fmt");
  QUENCH_CHECK_AS(ErrorCode::unsupported, format == nullptr || *format == Json("e4m3"),
                  "{}: {}.fmt is {}; e4m3 is read", source, kQuantizationConfig, format->dump());
  return open_float8_weights(folder, {.block = block, .static_inputs = static_inputs});
}

}  // namespace quench
