#pragma once
// The only list of model families.

#include <span>
#include <string_view>

#include "nn/config_reader.h"
#include "nn/sublayer.h"

namespace quench::nn {

// What a family's configuration class in Transformers takes where config.json says nothing.
struct ModelDefaults {
  std::int64_t max_position_embeddings = 2048;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
};

// What one family adds to the common decoder (RMSNorm, rotary positions, residual stream).
struct ModelFamily {
  std::string_view architecture;  // "LlamaForCausalLM"
  std::string_view model_type;    // "llama"
  // Fills the family's own switches and defaults from config.json; refuses what the family does not support here.
  void (*apply)(ConfigReader& in, ModelConfig& config);
  // Sets the members of config.json that apply() reads; null where there are none.
  void (*write)(const ModelConfig& config, Json& json);
  // Members of config.json that apply() reads and other families do not have (nn/model_fields.h).
  std::vector<std::string_view> executes;
  // The parts of a layer.
  SubLayerFactory attention;
  SubLayerFactory feed_forward;
  ModelDefaults defaults = {};
};

[[nodiscard]] std::span<const ModelFamily> model_families();
// By architecture or model_type; nullptr when unknown.
[[nodiscard]] const ModelFamily* find_model_family(std::string_view name);

extern const ModelFamily kDeepseekV3;
extern const ModelFamily kLlama;
extern const ModelFamily kLlama4;
extern const ModelFamily kMistral;
extern const ModelFamily kMixtral;
extern const ModelFamily kQwen2;
extern const ModelFamily kQwen3;
extern const ModelFamily kQwen3Moe;

}  // namespace quench::nn
