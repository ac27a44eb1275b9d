// Llama and the families that llama.cpp stores as its architecture llama.

#include "export/formats/gguf/architectures/architecture.h"
#include "export/formats/gguf/architectures/expert_metadata.h"

namespace quench {
namespace {

constexpr GgufTensorName kMixtralGgufTensors[] = {
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"post_attention_layernorm", "ffn_norm"},
    {"block_sparse_moe.gate", "ffn_gate_inp"},
};

void read_mixtral_gguf(const GgufLookup& find, Json& config) {
  copy_gguf_integer(find, kGgufExpertCount, "num_local_experts", config);
  copy_gguf_integer(find, kGgufExpertsUsed, "num_experts_per_tok", config);
}

}  // namespace

extern const GgufArchitecture kGgufLlama, kGgufMistral, kGgufMixtral;
const GgufArchitecture kGgufLlama{.model_type = "llama",
                                  .name = "llama",
                                  .interleaved_rotation = true,
                                  .bias_is_chosen = true,
                                  .output_bias = true,
                                  .free_head_dim = true,
                                  .rope_divisors = true,
                                  .longrope = true,
                                  .wide_values = true};

const GgufArchitecture kGgufMistral{.model_type = "mistral",
                                    .name = "llama",
                                    .interleaved_rotation = true,
                                    .output_bias = true,
                                    .free_head_dim = true,
                                    .rope_divisors = true,
                                    .longrope = true,
                                    .wide_values = true};

const GgufArchitecture kGgufMixtral{.model_type = "mixtral",
                                    .name = "llama",
                                    .interleaved_rotation = true,
                                    .experts = true,
                                    .free_head_dim = true,
                                    .rope_divisors = true,
                                    .longrope = true,
                                    .layer_tensors = kMixtralGgufTensors,
                                    .numbers = gguf_expert_counts,
                                    .read = read_mixtral_gguf};

}  // namespace quench
