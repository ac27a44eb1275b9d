// SmolLM3 in llama.cpp.

#include "export/formats/gguf/architectures/architecture.h"

namespace quench {
namespace {

constexpr std::int64_t kLlamaCppInterval = 4;  // not in a file's metadata

std::string smollm3_gguf_problem(const nn::ModelConfig& config) {
  for (const nn::BlockSpec& block : config.blocks)
    if (block.attention.rotary.has_value() != ((block.layer + 1) % kLlamaCppInterval != 0))
      return fmt::format("no_rope_layers: llama.cpp has no RoPE in every layer number {} of this architecture",
                         kLlamaCppInterval);
  if (config.qkv_bias || config.mlp_bias)
    return "attention_bias, mlp_bias: llama.cpp has no biases in this architecture";
  return {};
}

void read_smollm3_gguf(const GgufLookup&, Json& config) {
  config.set("no_rope_layer_interval", kLlamaCppInterval);
}

}  // namespace

extern const GgufArchitecture kGgufSmolLm3;
const GgufArchitecture kGgufSmolLm3{.model_type = "smollm3",
                                    .name = "smollm3",
                                    .interleaved_rotation = true,
                                    .free_head_dim = true,
                                    .problem = smollm3_gguf_problem,
                                    .read = read_smollm3_gguf};

}  // namespace quench
