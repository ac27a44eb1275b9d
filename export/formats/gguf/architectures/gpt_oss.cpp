// gpt-oss in llama.cpp.

#include "export/formats/gguf/architectures/architecture.h"
#include "export/formats/gguf/architectures/expert_metadata.h"

namespace quench {
namespace {

constexpr GgufTensorName kGptOssGgufTensors[] = {
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.sinks", "attn_sinks.weight"},
    {"post_attention_layernorm", "post_attention_norm"},
    {"mlp.router", "ffn_gate_inp"},
};
constexpr ClampedUnit kLlamaCppUnit{.slope = 1.702f, .limit = 7.0f};

std::string gpt_oss_gguf_problem(const nn::ModelConfig& config) {
  if (config.experts.clamped->slope != kLlamaCppUnit.slope || config.experts.clamped->limit != kLlamaCppUnit.limit)
    return fmt::format("swiglu_alpha, swiglu_limit: llama.cpp has {} and {}", kLlamaCppUnit.slope, kLlamaCppUnit.limit);
  if (!config.qkv_bias) return "attention_bias: llama.cpp has biases in this architecture";
  if (config.tie_word_embeddings) return "tie_word_embeddings: llama.cpp has a head of its own in this architecture";
  for (const nn::BlockSpec& block : config.blocks)
    if ((block.attention.window > 0) != (block.layer % 2 == 0))
      return "layer_types: llama.cpp has a window in every other layer, the first one too";
  return {};
}

std::vector<GgufNumber> gpt_oss_gguf_numbers(const nn::ModelConfig& config) {
  std::vector<GgufNumber> numbers = gguf_expert_sizes(config);
  numbers.push_back({"attention.sliding_window", static_cast<std::uint32_t>(config.sliding_window)});
  return numbers;
}

void read_gpt_oss_gguf(const GgufLookup& find, Json& config) {
  copy_gguf_integer(find, kGgufExpertCount, "num_local_experts", config);
  copy_gguf_integer(find, kGgufExpertsUsed, "num_experts_per_tok", config);
  copy_gguf_integer(find, kGgufExpertWidth, "intermediate_size", config);
  copy_gguf_integer(find, "attention.sliding_window", "sliding_window", config);
}

}  // namespace

extern const GgufArchitecture kGgufGptOss;
const GgufArchitecture kGgufGptOss{.model_type = "gpt_oss",
                                   .name = "gpt-oss",
                                   .bias_is_chosen = true,
                                   .output_bias = true,
                                   .experts = true,
                                   .unrounded_yarn = true,
                                   .free_head_dim = true,
                                   .layer_tensors = kGptOssGgufTensors,
                                   .sliding_window = true,
                                   .problem = gpt_oss_gguf_problem,
                                   .numbers = gpt_oss_gguf_numbers,
                                   .read = read_gpt_oss_gguf};

}  // namespace quench
