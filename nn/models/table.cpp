#include "nn/models/table.h"

#include <algorithm>

#include "core/system/choice_table.h"

namespace quench::nn {

extern const ModelFamily kDeepseekV3, kGemma2, kGemma3, kGlm4, kGptOss, kGranite, kLlama, kLlama4, kMistral, kMixtral,
    kOlmo2, kPhi3, kQwen2, kQwen2Moe, kQwen3, kQwen3Moe, kSmolLm3;

bool ModelFamily::has_member(std::string_view name) const {
  return std::ranges::find(executes, name) != executes.end() ||
         std::ranges::find(members, name, &ConfigMember::name) != members.end();
}

std::span<const ModelFamily> model_families() {
  static const TableEntries<ModelFamily> families(
      "model family", {kDeepseekV3, kGemma2, kGemma3, kGlm4, kGptOss, kGranite, kLlama, kLlama4, kMistral, kMixtral,
                       kOlmo2, kPhi3, kQwen2, kQwen2Moe, kQwen3, kQwen3Moe, kSmolLm3});
  return families.all();
}

const ModelFamily* find_model_family(std::string_view name) {
  for (const ModelFamily& family : model_families())
    if (family.architecture == name || family.model_type == name) return &family;
  return nullptr;
}

}  // namespace quench::nn
