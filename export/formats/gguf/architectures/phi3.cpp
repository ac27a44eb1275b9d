// Phi-3 and Phi-4 in llama.cpp.

#include "export/formats/gguf/architectures/architecture.h"

namespace quench {
namespace {

constexpr GgufTensorName kPhi3GgufTensors[] = {
    {"input_layernorm", "attn_norm"},         {"self_attn.qkv_proj", "attn_qkv"}, {"self_attn.o_proj", "attn_output"},
    {"post_attention_layernorm", "ffn_norm"}, {"mlp.gate_up_proj", "ffn_up"},     {"mlp.down_proj", "ffn_down"},
};

constexpr std::string_view kPhi3Tokens[] = {"</s>", "<unk>", "<s>", "<|endoftext|>"};

// 0: llama.cpp has no window in this architecture.
std::vector<GgufNumber> phi3_gguf_numbers(const nn::ModelConfig&) {
  return {{"attention.sliding_window", std::uint32_t{0}}};
}

}  // namespace

extern const GgufArchitecture kGgufPhi3;
const GgufArchitecture kGgufPhi3{.model_type = "phi3",
                                 .name = "phi3",
                                 .free_head_dim = true,
                                 .partial_rotation = true,
                                 .longrope = true,
                                 .layer_tensors = kPhi3GgufTensors,
                                 .tokens_of_name = kPhi3Tokens,
                                 .numbers = phi3_gguf_numbers};

}  // namespace quench
