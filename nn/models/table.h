#pragma once
// The only list of model families.

#include <span>
#include <string_view>

#include "nn/model_config.h"

namespace quench::nn {

// What one family adds to the common decoder (RMSNorm, rotary positions, grouped-query attention, SwiGLU).
struct ModelFamily {
  std::string_view architecture;  // "LlamaForCausalLM"
  std::string_view model_type;    // "llama"
  // Fills the family's own switches and defaults from config.json; refuses what the family does not support here.
  void (*apply)(const Json& json, std::string_view source, ModelConfig& config);
  // Members of config.json that apply() reads and other families do not have (nn/model_fields.h).
  std::vector<std::string_view> executes;
};

[[nodiscard]] std::span<const ModelFamily> model_families();
// By architecture or model_type; nullptr when unknown.
[[nodiscard]] const ModelFamily* find_model_family(std::string_view name);

extern const ModelFamily kLlama;
extern const ModelFamily kMistral;
extern const ModelFamily kQwen2;
extern const ModelFamily kQwen3;

}  // namespace quench::nn
