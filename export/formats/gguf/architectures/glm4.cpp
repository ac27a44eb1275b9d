// GLM-4-0414 in llama.cpp.

#include "export/formats/gguf/architectures/architecture.h"

namespace quench {
namespace {

constexpr GgufTensorName kGlm4GgufTensors[] = {
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"post_self_attn_layernorm", "post_attention_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"post_mlp_layernorm", "post_ffw_norm"},
};

}  // namespace

extern const GgufArchitecture kGgufGlm4;
const GgufArchitecture kGgufGlm4{.model_type = "glm4",
                                 .name = "glm4",
                                 .bias_is_chosen = true,
                                 .free_head_dim = true,
                                 .partial_rotation = true,
                                 .layer_tensors = kGlm4GgufTensors};

}  // namespace quench
