// The table of model families.

#include "core/system/choice_table.h"
#include "nn/spec/model_family.h"

namespace quench::nn {

extern const ModelFamily kDeepseekV3, kGemma2, kGemma3, kGlm4, kGptOss, kGranite, kLlama, kLlama4, kMistral, kMixtral,
    kOlmo2, kPhi3, kQwen2, kQwen2Moe, kQwen3, kQwen3Moe, kSmolLm3;

std::span<const ModelFamily> model_families() {
  static const TableEntries<ModelFamily> families(
      "model family", {kDeepseekV3, kGemma2, kGemma3, kGlm4, kGptOss, kGranite, kLlama, kLlama4, kMistral, kMixtral,
                       kOlmo2, kPhi3, kQwen2, kQwen2Moe, kQwen3, kQwen3Moe, kSmolLm3});
  return families.all();
}

}  // namespace quench::nn
