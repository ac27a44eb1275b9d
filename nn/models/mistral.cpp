// Mistral: Llama with an optional sliding window.

#include "nn/attention/attention.h"
#include "nn/mlp.h"
#include "nn/models/sliding_window.h"
#include "nn/models/table.h"

namespace quench::nn {
namespace {

// Defaults of Transformers' MistralConfig.
constexpr std::int64_t kDefaultWindow = 4096, kDefaultKvHeads = 8;

void read_mistral(ConfigReader& in, ModelConfig& config) {
  read_sliding_window(in, kDefaultWindow, config);
  if (in.find("num_key_value_heads") == nullptr) config.num_key_value_heads = kDefaultKvHeads;
}

}  // namespace

const ModelFamily kMistral{"MistralForCausalLM", "mistral",
                           read_mistral,         write_sliding_window,
                           {"sliding_window"},   make_sublayer<Attention>,
                           make_sublayer<Mlp>,   {.max_position_embeddings = 131072}};

}  // namespace quench::nn
