// Mistral 7B and its relatives: Llama whose queries see the last sliding_window keys only, where there is one.

#include "nn/models/table.h"

namespace quench::nn {
namespace {

// What Transformers' MistralConfig takes where config.json says nothing.
constexpr std::int64_t kDefaultWindow = 4096, kDefaultKvHeads = 8;

void apply(const Json& json, std::string_view source, ModelConfig& config) {
  const Json* window = json.find("sliding_window");
  if (window == nullptr) {
    config.sliding_window = kDefaultWindow;
  } else if (!window->is_null()) {  // null: none
    QUENCH_CHECK_AS(
        ErrorCode::bad_config, window->is_integer() && window->as_double() >= 1 && window->as_double() < 2e9,
        "{}:{}: sliding_window: expected a positive integer or null, got {}", source, window->line(), window->dump());
    config.sliding_window = window->as_int();
  }
  const Json* kv_heads = json.find("num_key_value_heads");
  if (kv_heads == nullptr || kv_heads->is_null()) config.num_key_value_heads = kDefaultKvHeads;
}

}  // namespace

const ModelFamily kMistral{"MistralForCausalLM", "mistral", apply, {"sliding_window"}};

}  // namespace quench::nn
