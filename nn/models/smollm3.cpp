// SmolLM3 (Hugging Face Transformers, modeling_smollm3): Llama without RoPE in some layers, every fourth by default.

#include "nn/models/decoder_block.h"
#include "nn/models/rotated_layers.h"
#include "nn/models/sliding_window.h"
#include "nn/spec/model_family.h"

namespace quench::nn {
namespace {

void read_smollm3(ConfigReader& in, ModelConfig& config) {
  config.qkv_bias = config.output_bias = in.boolean("attention_bias", false);
  config.mlp_bias = in.boolean("mlp_bias", false);
  const std::vector<bool> rotated = read_rotated_layers(in, config.num_hidden_layers);
  if (in.boolean("use_sliding_window", false)) read_sliding_window(in, 0, config);
  std::vector<bool> windowed(rotated.size(), false);
  if (config.sliding_window > 0) {  // the layers without RoPE, as in SmolLM3Config
    windowed = rotated;
    windowed.flip();
  }
  windowed = read_window_types(in, std::move(windowed), config);
  config.blocks = decoder_blocks(config, {.windowed = windowed, .rotated = rotated});
}

void write_smollm3(const ModelConfig& config, Json& json) {
  json.set("attention_bias", config.qkv_bias);
  json.set("mlp_bias", config.mlp_bias);
  write_rotated_layers(config, json);
  write_layer_windows(config, json);
}

}  // namespace

extern const ModelFamily kSmolLm3;
const ModelFamily kSmolLm3{.architecture = "SmolLM3ForCausalLM",
                           .model_type = "smollm3",
                           .apply = read_smollm3,
                           .write = write_smollm3,
                           .executes = {"attention_bias", "mlp_bias", "no_rope_layers", "no_rope_layer_interval",
                                        "sliding_window", "use_sliding_window", "layer_types"},
                           .defaults = {.max_position_embeddings = 32768,
                                        .rope_theta = 2e6,
                                        .vocab_size = 128256,
                                        .hidden_size = 2048,
                                        .intermediate_size = 11008,
                                        .num_hidden_layers = 36,
                                        .num_attention_heads = 16,
                                        .num_key_value_heads = 4,
                                        .tie_word_embeddings = true}};

}  // namespace quench::nn
