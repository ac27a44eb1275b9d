
#include "nn/attention/attention.h"
#include "nn/mlp.h"
#include "nn/models/table.h"

namespace quench::nn {
namespace {

void read_llama(ConfigReader& in, ModelConfig& config) {
  // attention_bias covers all four projections, as in Transformers.
  config.qkv_bias = config.output_bias = in.boolean("attention_bias", false);
  config.mlp_bias = in.boolean("mlp_bias", false);
}

void write_llama(const ModelConfig& config, Json& json) {
  json.set("attention_bias", config.qkv_bias);
  json.set("mlp_bias", config.mlp_bias);
}

}  // namespace

const ModelFamily kLlama{
    "LlamaForCausalLM",       "llama",           read_llama, write_llama, {"attention_bias", "mlp_bias"},
    make_sublayer<Attention>, make_sublayer<Mlp>};

}  // namespace quench::nn
