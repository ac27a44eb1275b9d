#pragma once
// Low-rank updates of embedding and untied head in a PEFT adapter, applied to copies of the whole weights: A [r,
// hidden] and B [vocabulary, r] of the head, A [r, vocabulary] and B [hidden, r] of the embedding.

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/safetensors/safetensors.h"
#include "nn/decoder/causal_lm.h"
#include "train/model_folder/peft_config.h"

namespace quench {

struct VocabularyUpdate {
  const SafetensorsEntry* a = nullptr;
  const SafetensorsEntry* b = nullptr;
};
using VocabularyUpdates = std::map<std::string, VocabularyUpdate>;  // by module, "lm_head"

// False: another tensor.
[[nodiscard]] bool take_update(const SafetensorsEntry& entry, VocabularyUpdates& updates);

// Missing matrices, other shapes and dtypes. Throws unsupported, naming `file` (adapter_config.json) and the modules,
// for a model whose head is tied and for DoRA.
[[nodiscard]] std::vector<std::string> update_faults(const nn::ModelConfig& model, const PeftConfig& config,
                                                     const VocabularyUpdates& updates,
                                                     const std::filesystem::path& file);

// `value` = weight of `module` + scale * update, in f32, rounded once. Throws unsupported for a quantized weight.
void load_update(nn::CausalLm& model, const SafetensorsReader& weights, std::string_view module,
                 const VocabularyUpdate& update, double scale, Tensor value);

}  // namespace quench
