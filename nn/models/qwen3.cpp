// Qwen3 (dense): Llama with RMSNorm on every query and key head before the rotation, and a head_dim of its own.

#include "nn/models/table.h"

namespace quench::nn {
namespace {

void apply(const Json& json, std::string_view source, ModelConfig& config) {
  const Json* sliding = json.find("use_sliding_window");
  if (sliding != nullptr && !sliding->is_null() && sliding->as_bool())
    QUENCH_FAIL(ErrorCode::unsupported, "{}: use_sliding_window is true; only full attention is supported", source);
  const Json* bias = json.find("attention_bias");
  config.qkv_bias = config.output_bias = bias != nullptr && !bias->is_null() && bias->as_bool();
  config.qk_norm = true;
  const Json* head_dim = json.find("head_dim");
  if (head_dim == nullptr || head_dim->is_null()) config.head_dim = 128;  // the class default, not hidden/heads
}

}  // namespace

const ModelFamily kQwen3{
    "Qwen3ForCausalLM", "qwen3", apply, {"attention_bias", "sliding_window", "use_sliding_window"}};

}  // namespace quench::nn
