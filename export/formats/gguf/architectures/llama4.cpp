// Llama 4 in llama.cpp.

#include <algorithm>

#include "export/formats/gguf/architectures/architecture.h"
#include "export/formats/gguf/architectures/expert_metadata.h"

namespace quench {
namespace {

constexpr GgufTensorName kLlama4GgufTensors[] = {
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"post_attention_layernorm", "ffn_norm"},
    {"feed_forward.router", "ffn_gate_inp"},
    {"feed_forward.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"feed_forward.shared_expert.up_proj", "ffn_up_shexp"},
    {"feed_forward.shared_expert.down_proj", "ffn_down_shexp"},
    {"feed_forward.gate_proj", "ffn_gate"},
    {"feed_forward.up_proj", "ffn_up"},
    {"feed_forward.down_proj", "ffn_down"},
};

// llama.cpp has these numbers in its code; files say nothing of them.
struct Llama4Loader {
  std::int64_t interval = 4, chunk = 8192, step = 8192, without_norm = 128;
  double temperature = 0.1;
};
constexpr Llama4Loader kLlama4Loader;

// Every n-th layer has experts; 0: no such n.
std::int64_t expert_interval(const nn::ModelConfig& config) {
  for (std::int64_t step = 1; step <= config.num_hidden_layers; ++step)
    if (std::ranges::all_of(config.blocks, [step](const nn::BlockSpec& block) {
          return block.feed_forward.experts.has_value() == ((block.layer + 1) % step == 0);
        }))
      return step;
  return 0;
}

// Chunk of the layers that have one; llama.cpp's if none has.
std::int64_t chunk_of(const nn::ModelConfig& config) {
  for (const nn::BlockSpec& block : config.blocks)
    if (block.attention.chunk > 0) return block.attention.chunk;
  return kLlama4Loader.chunk;
}

// Query scale of a layer without RoPE.
bool has_other_temperature(const nn::AttentionSpec& attention, std::int64_t context) {
  const auto& temperature = attention.temperature;
  const bool equal = temperature && temperature->scale == kLlama4Loader.temperature &&
                     temperature->step == static_cast<double>(kLlama4Loader.step);
  const bool unused =
      context < kLlama4Loader.step && (!temperature || temperature->step > static_cast<double>(context));
  return !equal && !unused;
}

std::string llama4_gguf_problem(const nn::ModelConfig& config) {
  const std::int64_t context = config.context_length(), chunk = chunk_of(config);
  const bool chunks_act = std::min(chunk, kLlama4Loader.chunk) < context;
  for (const nn::BlockSpec& block : config.blocks) {
    const bool plain = (block.layer + 1) % kLlama4Loader.interval == 0;
    if (block.attention.rotary.has_value() == plain)
      return fmt::format("no_rope_layers: llama.cpp has no RoPE in every layer number {} of this architecture",
                         kLlama4Loader.interval);
    if ((block.attention.chunk > 0) == plain && chunks_act)
      return fmt::format("layer_types: llama.cpp has full attention in every layer number {} of this architecture",
                         kLlama4Loader.interval);
  }
  if (chunk != kLlama4Loader.chunk && chunks_act)
    return fmt::format("attention_chunk_size {}: llama.cpp has {}", chunk, kLlama4Loader.chunk);
  for (const nn::BlockSpec& block : config.blocks)
    if (!block.attention.rotary && has_other_temperature(block.attention, context))
      return fmt::format("attn_temperature_tuning, attn_scale, floor_scale: llama.cpp has {} and {}",
                         kLlama4Loader.temperature, kLlama4Loader.step);
  const bool unit_norm = config.block(0).attention.qk_norm == nn::QkNorm::unweighted;
  if (unit_norm == (config.experts.count == kLlama4Loader.without_norm))
    return fmt::format("use_qk_norm: llama.cpp has the norm unless there are {} experts", kLlama4Loader.without_norm);
  if (expert_interval(config) == 0) return "moe_layers: llama.cpp has experts in every n-th layer";
  return {};
}

std::vector<GgufNumber> llama4_gguf_numbers(const nn::ModelConfig& config) {
  std::vector<GgufNumber> numbers = gguf_expert_sizes(config);
  numbers.push_back({"interleave_moe_layer_step", static_cast<std::uint32_t>(expert_interval(config))});
  return numbers;
}

void read_llama4_gguf(const GgufLookup& find, Json& config) {
  config.set("intermediate_size_mlp", *config.find("intermediate_size"));
  copy_gguf_integer(find, kGgufExpertWidth, "intermediate_size", config);
  copy_gguf_integer(find, kGgufExpertCount, "num_local_experts", config);
  copy_gguf_integer(find, kGgufExpertsUsed, "num_experts_per_tok", config);
  copy_gguf_integer(find, "interleave_moe_layer_step", "interleave_moe_layer_step", config);
  config.set("no_rope_layer_interval", kLlama4Loader.interval);
  config.set("use_qk_norm", find(kGgufExpertCount).value_or(0) != static_cast<double>(kLlama4Loader.without_norm));
}

}  // namespace

extern const GgufArchitecture kGgufLlama4;
const GgufArchitecture kGgufLlama4{.model_type = "llama4_text",
                                   .name = "llama4",
                                   .experts = true,
                                   .free_head_dim = true,
                                   .rope_divisors = true,
                                   .layer_tensors = kLlama4GgufTensors,
                                   .problem = llama4_gguf_problem,
                                   .numbers = llama4_gguf_numbers,
                                   .read = read_llama4_gguf};

}  // namespace quench
