
#include "nn/models/decoder_block.h"
#include "nn/spec/model_family.h"

namespace quench::nn {
namespace {

void read_llama(ConfigReader& in, ModelConfig& config) {
  // attention_bias covers all four projections, as in Transformers.
  config.qkv_bias = config.output_bias = in.boolean("attention_bias", false);
  config.mlp_bias = in.boolean("mlp_bias", false);
  config.blocks = decoder_blocks(config);
}

void write_llama(const ModelConfig& config, Json& json) {
  json.set("attention_bias", config.qkv_bias);
  json.set("mlp_bias", config.mlp_bias);
}

}  // namespace

extern const ModelFamily kLlama;
const ModelFamily kLlama{.architecture = "LlamaForCausalLM",
                         .model_type = "llama",
                         .apply = read_llama,
                         .write = write_llama,
                         .executes = {"attention_bias", "mlp_bias"}};

}  // namespace quench::nn
