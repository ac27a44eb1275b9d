// Qwen2: Llama with QKV bias.

#include "nn/models/decoder_block.h"
#include "nn/models/sliding_window.h"
#include "nn/spec/model_family.h"

namespace quench::nn {
namespace {

void read_qwen2(ConfigReader& in, ModelConfig& config) {
  const std::vector<bool> windowed = read_layer_windows(in, config);
  QUENCH_CHECK_AS(ErrorCode::unsupported, in.boolean("attention_bias", true),
                  "{}: attention_bias is false; Qwen2 has a bias on query, key and value in any case", in.source());
  config.qkv_bias = true;
  config.blocks = decoder_blocks(config, {.windowed = windowed});
}

}  // namespace

extern const ModelFamily kQwen2;
const ModelFamily kQwen2{.architecture = "Qwen2ForCausalLM",
                         .model_type = "qwen2",
                         .apply = read_qwen2,
                         .write = write_layer_windows,
                         .executes = {"attention_bias", "sliding_window", "use_sliding_window", "layer_types"},
                         .defaults = {.max_position_embeddings = 32768}};

}  // namespace quench::nn
