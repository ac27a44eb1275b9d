// Qwen2: Llama with QKV bias.

#include "nn/attention/attention.h"
#include "nn/mlp.h"
#include "nn/models/sliding_window.h"
#include "nn/models/table.h"

namespace quench::nn {
namespace {

void read_qwen2(ConfigReader& in, ModelConfig& config) {
  read_layer_windows(in, config);
  QUENCH_CHECK_AS(ErrorCode::unsupported, in.boolean("attention_bias", true),
                  "{}: attention_bias is false; Qwen2 has a bias on query, key and value in any case", in.source());
  config.qkv_bias = true;
}

}  // namespace

const ModelFamily kQwen2{"Qwen2ForCausalLM",
                         "qwen2",
                         read_qwen2,
                         write_layer_windows,
                         {"attention_bias", "sliding_window", "use_sliding_window", "layer_types"},
                         make_sublayer<Attention>,
                         make_sublayer<Mlp>,
                         {.max_position_embeddings = 32768}};

}  // namespace quench::nn
