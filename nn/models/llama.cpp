// Llama 2, 3, 3.1, 3.2, 3.3 and the many models that share the architecture (TinyLlama, SmolLM2, ...).

#include "nn/models/table.h"

namespace quench::nn {
namespace {

bool flag(const Json& json, std::string_view key) {
  const Json* value = json.find(key);
  return value != nullptr && !value->is_null() && value->as_bool();
}

void apply(const Json& json, std::string_view, ModelConfig& config) {
  // transformers: attention_bias covers all four projections.
  config.qkv_bias = config.output_bias = flag(json, "attention_bias");
  config.mlp_bias = flag(json, "mlp_bias");
}

}  // namespace

const ModelFamily kLlama{"LlamaForCausalLM", "llama", apply, {"attention_bias", "mlp_bias"}};

}  // namespace quench::nn
