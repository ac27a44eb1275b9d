#include "export/formats/gguf/names.h"

#include <algorithm>
#include <array>

namespace quench {
namespace {

constexpr std::array kArchitectures = {
    GgufArchitecture{.model_type = "llama",
                     .hf_name = "LlamaForCausalLM",
                     .name = "llama",
                     .interleaved_rotation = true,
                     .bias_is_chosen = true,
                     .output_bias = true,
                     .free_head_dim = true,
                     .rope_divisors = true},
    GgufArchitecture{.model_type = "mistral",
                     .hf_name = "MistralForCausalLM",
                     .name = "llama",
                     .interleaved_rotation = true,
                     .bias_is_chosen = false,
                     .output_bias = true,
                     .free_head_dim = true,
                     .rope_divisors = true},
    GgufArchitecture{.model_type = "qwen2",
                     .hf_name = "Qwen2ForCausalLM",
                     .name = "qwen2",
                     .interleaved_rotation = false,
                     .bias_is_chosen = false,
                     .output_bias = false,
                     .free_head_dim = false,
                     .rope_divisors = false},
    GgufArchitecture{.model_type = "qwen3",
                     .hf_name = "Qwen3ForCausalLM",
                     .name = "qwen3",
                     .interleaved_rotation = false,
                     .bias_is_chosen = true,
                     .output_bias = false,
                     .free_head_dim = true,
                     .rope_divisors = false},
};

struct Pair {
  std::string_view hf, gguf;
};

// Without ".weight" or ".bias".
constexpr std::array kWhole = {
    Pair{"model.embed_tokens", "token_embd"},
    Pair{"model.norm", "output_norm"},
    Pair{"lm_head", "output"},
};
constexpr std::array kOfLayer = {
    Pair{"input_layernorm", "attn_norm"},    Pair{"self_attn.q_proj", "attn_q"},
    Pair{"self_attn.k_proj", "attn_k"},      Pair{"self_attn.v_proj", "attn_v"},
    Pair{"self_attn.o_proj", "attn_output"}, Pair{"self_attn.q_norm", "attn_q_norm"},
    Pair{"self_attn.k_norm", "attn_k_norm"}, Pair{"post_attention_layernorm", "ffn_norm"},
    Pair{"mlp.gate_proj", "ffn_gate"},       Pair{"mlp.up_proj", "ffn_up"},
    Pair{"mlp.down_proj", "ffn_down"},
};
constexpr std::string_view kHfLayer = "model.layers.", kGgufLayer = "blk.";

std::optional<std::string> translate(std::string_view name, std::string_view Pair::*from, std::string_view Pair::*to,
                                     std::string_view layer_from, std::string_view layer_to) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view kind = name.substr(dot);
  std::string_view stem = name.substr(0, dot);
  if (kind != ".weight" && kind != ".bias") return std::nullopt;
  std::string prefix;
  if (stem.starts_with(layer_from)) {
    stem.remove_prefix(layer_from.size());
    const std::size_t end = stem.find('.');
    const std::string_view number = stem.substr(0, end);
    const bool digits = !number.empty() && number.size() < 8 &&
                        std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; });
    if (end == std::string_view::npos || !digits) return std::nullopt;
    prefix = std::string(layer_to) + std::string(number) + ".";
    stem.remove_prefix(end + 1);
    for (const Pair& pair : kOfLayer)
      if (pair.*from == stem) return prefix + std::string(pair.*to) + std::string(kind);
    return std::nullopt;
  }
  for (const Pair& pair : kWhole)
    if (pair.*from == stem) return std::string(pair.*to) + std::string(kind);
  return std::nullopt;
}

}  // namespace

const GgufArchitecture* find_gguf_architecture(std::string_view model_type) {
  const auto* found = std::ranges::find(kArchitectures, model_type, &GgufArchitecture::model_type);
  return found == kArchitectures.end() ? nullptr : found;
}

const GgufArchitecture* find_gguf_architecture_by_name(std::string_view name) {
  const auto* found = std::ranges::find(kArchitectures, name, &GgufArchitecture::name);
  return found == kArchitectures.end() ? nullptr : found;
}

std::string gguf_architecture_names() {
  std::string names;
  for (const GgufArchitecture& one : kArchitectures)
    if (&one == find_gguf_architecture_by_name(one.name))
      names += fmt::format("{}{}", names.empty() ? "" : ", ", one.name);
  return names;
}

std::optional<std::string> gguf_tensor_name(std::string_view hf_name) {
  return translate(hf_name, &Pair::hf, &Pair::gguf, kHfLayer, kGgufLayer);
}

std::optional<std::string> hf_tensor_name(std::string_view gguf_name) {
  return translate(gguf_name, &Pair::gguf, &Pair::hf, kGgufLayer, kHfLayer);
}

std::int64_t rotated_heads(std::string_view hf_name, const nn::ModelConfig& config) {
  if (hf_name.find(".self_attn.q_proj.") != std::string_view::npos) return config.num_attention_heads;
  if (hf_name.find(".self_attn.k_proj.") != std::string_view::npos) return config.num_key_value_heads;
  return 0;
}

}  // namespace quench
