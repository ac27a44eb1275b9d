// Mistral: Llama with an optional sliding window; also the text model of Mistral Small 3.1 and 3.2.

#include "nn/models/decoder_block.h"
#include "nn/models/sliding_window.h"
#include "nn/spec/model_family.h"

namespace quench::nn {
namespace {

// Defaults of Transformers' MistralConfig.
constexpr std::int64_t kDefaultWindow = 4096, kDefaultKvHeads = 8;

void read_mistral(ConfigReader& in, ModelConfig& config) {
  read_sliding_window(in, kDefaultWindow, config);
  if (in.find("num_key_value_heads") == nullptr) config.num_key_value_heads = kDefaultKvHeads;
  config.blocks = decoder_blocks(config);
}

}  // namespace

extern const ModelFamily kMistral;
const ModelFamily kMistral{.architecture = "MistralForCausalLM",
                           .model_type = "mistral",
                           .apply = read_mistral,
                           .write = write_sliding_window,
                           .executes = {"sliding_window"},
                           .defaults = {.max_position_embeddings = 131072},
                           .multimodal_architecture = "Mistral3ForConditionalGeneration"};

}  // namespace quench::nn
