// OLMo 2 (arXiv:2501.00656): norms of the sublayers' outputs instead of their inputs; RMSNorm of all query heads and of
// all key heads at once.

#include "nn/models/decoder_block.h"
#include "nn/spec/model_family.h"

namespace quench::nn {
namespace {

void read_olmo2(ConfigReader& in, ModelConfig& config) {
  config.qkv_bias = config.output_bias = in.boolean("attention_bias", false);
}

void write_olmo2(const ModelConfig& config, Json& json) {
  json.set("attention_bias", config.qkv_bias);
}

RmsNormForm olmo2_form(const ModelConfig& config) {
  return {config.rms_norm_eps, 0.0f, true};
}

StreamSpec olmo2_stream(const ModelConfig& config) {
  return {.norm = {"norm", olmo2_form(config)}};
}

BlockSpec olmo2_block(const ModelConfig& config, std::int64_t layer) {
  BlockSpec block = decoder_block(config, layer);
  block.attention.norm = block.feed_forward.norm = NormSpec{"", olmo2_form(config)};
  block.attention.post_norm = NormSpec{"post_attention_layernorm", olmo2_form(config)};
  block.feed_forward.post_norm = NormSpec{"post_feedforward_layernorm", olmo2_form(config)};
  block.attention.qk_norm = QkNorm::all_heads;
  block.attention.qk_form = olmo2_form(config);
  return block;
}

}  // namespace

extern const ModelFamily kOlmo2;
const ModelFamily kOlmo2{.architecture = "Olmo2ForCausalLM",
                         .model_type = "olmo2",
                         .apply = read_olmo2,
                         .write = write_olmo2,
                         .executes = {"attention_bias"},
                         .block = olmo2_block,
                         .stream = olmo2_stream,
                         .defaults = {.rms_norm_eps = 1e-5,
                                      .vocab_size = 50304,
                                      .hidden_size = 4096,
                                      .intermediate_size = 11008,
                                      .num_hidden_layers = 32,
                                      .num_attention_heads = 32}};

}  // namespace quench::nn
