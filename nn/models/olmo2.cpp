// OLMo 2 (arXiv:2501.00656): norms of the sublayers' outputs instead of their inputs; RMSNorm of all query heads and of
// all key heads at once.

#include "nn/models/decoder_block.h"
#include "nn/spec/model_family.h"

namespace quench::nn {
namespace {

void read_olmo2(ConfigReader& in, ModelConfig& config) {
  config.qkv_bias = config.output_bias = in.boolean("attention_bias", false);
  const RmsNormForm form{config.rms_norm_eps, 0.0f, true};
  config.blocks = decoder_blocks(config);
  for (BlockSpec& block : config.blocks) {
    block.attention.norm = block.feed_forward.norm = NormSpec{"", form};
    block.attention.post_norm = NormSpec{"post_attention_layernorm", form};
    block.feed_forward.post_norm = NormSpec{"post_feedforward_layernorm", form};
    block.attention.qk_norm = QkNorm::all_heads;
    block.attention.qk_form = form;
  }
  config.stream.norm.form = form;
}

void write_olmo2(const ModelConfig& config, Json& json) {
  json.set("attention_bias", config.qkv_bias);
}

}  // namespace

extern const ModelFamily kOlmo2;
const ModelFamily kOlmo2{.architecture = "Olmo2ForCausalLM",
                         .model_type = "olmo2",
                         .apply = read_olmo2,
                         .write = write_olmo2,
                         .executes = {"attention_bias"},
                         .defaults = {.rms_norm_eps = 1e-5,
                                      .vocab_size = 50304,
                                      .hidden_size = 4096,
                                      .intermediate_size = 11008,
                                      .num_hidden_layers = 32,
                                      .num_attention_heads = 32}};

}  // namespace quench::nn
