// Qwen2 and Qwen2.5: Llama with a bias on query, key and value.

#include "nn/models/table.h"

namespace quench::nn {
namespace {

void apply(const Json& json, std::string_view source, ModelConfig& config) {
  const Json* sliding = json.find("use_sliding_window");
  if (sliding != nullptr && !sliding->is_null() && sliding->as_bool())
    QUENCH_FAIL(ErrorCode::unsupported, "{}: use_sliding_window is true; only full attention is supported", source);
  const Json* bias = json.find("attention_bias");
  QUENCH_CHECK_AS(ErrorCode::unsupported, bias == nullptr || bias->is_null() || bias->as_bool(),
                  "{}: attention_bias is false; Qwen2 has a bias on query, key and value in any case", source);
  config.qkv_bias = true;
}

}  // namespace

const ModelFamily kQwen2{
    "Qwen2ForCausalLM", "qwen2", apply, {"attention_bias", "sliding_window", "use_sliding_window"}};

}  // namespace quench::nn
