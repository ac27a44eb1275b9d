// The table of architectures in GGUF files.

#include <algorithm>

#include "export/formats/gguf/architectures/architecture.h"

namespace quench {

extern const GgufArchitecture kGgufDeepseekV3, kGgufGemma2, kGgufGemma3, kGgufGlm4, kGgufGptOss, kGgufGranite,
    kGgufLlama, kGgufLlama4, kGgufMistral, kGgufMixtral, kGgufOlmo2, kGgufPhi3, kGgufQwen2, kGgufQwen2Moe, kGgufQwen3,
    kGgufQwen3Moe, kGgufSmolLm3;

std::span<const GgufArchitecture> gguf_architectures() {
  static const TableEntries<GgufArchitecture> architectures(
      "GGUF architecture", {kGgufDeepseekV3, kGgufGemma2, kGgufGemma3, kGgufGlm4, kGgufGptOss, kGgufGranite, kGgufLlama,
                            kGgufLlama4, kGgufMistral, kGgufMixtral, kGgufOlmo2, kGgufPhi3, kGgufQwen2, kGgufQwen2Moe,
                            kGgufQwen3, kGgufQwen3Moe, kGgufSmolLm3});
  return architectures.all();
}

const GgufArchitecture* find_gguf_architecture(std::string_view model_type) {
  const auto architectures = gguf_architectures();
  const auto found = std::ranges::find(architectures, model_type, &GgufArchitecture::model_type);
  return found == architectures.end() ? nullptr : &*found;
}

}  // namespace quench
