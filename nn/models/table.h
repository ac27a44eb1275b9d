#pragma once

#include <span>
#include <string_view>

#include "nn/config_reader.h"
#include "nn/sublayer.h"

namespace quench::nn {

// Defaults of Transformers' configuration class.
struct ModelDefaults {
  std::int64_t max_position_embeddings = 2048;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
};

// Extension of the common decoder (RMSNorm, RoPE, residual stream).
struct ModelFamily {
  std::string_view architecture;  // "LlamaForCausalLM"
  std::string_view model_type;    // "llama"
  // Rejects unsupported options.
  void (*apply)(ConfigReader& in, ModelConfig& config);
  // Writes the members that apply() reads; may be null.
  void (*write)(const ModelConfig& config, Json& json);
  // Family-specific members that apply() reads.
  std::vector<std::string_view> executes;
  SubLayerFactory attention;
  SubLayerFactory feed_forward;
  ModelDefaults defaults = {};
};

[[nodiscard]] std::span<const ModelFamily> model_families();
// nullptr if unknown.
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
