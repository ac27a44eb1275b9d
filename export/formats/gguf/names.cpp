#include "export/formats/gguf/names.h"

#include <algorithm>
#include <array>
#include <span>

namespace quench {
namespace {

using Pair = GgufTensorName;

// Without ".weight" or ".bias".
constexpr std::array kWhole = {
    Pair{"model.embed_tokens", "token_embd"},
    Pair{"model.norm", "output_norm"},
    Pair{"lm_head", "output"},
};
constexpr std::string_view kHfLayer = "model.layers.", kGgufLayer = "blk.";

// Name translation from side `from` to side `to`.
std::optional<std::string> translate(std::string_view name, std::span<const Pair> layer_tensors,
                                     std::string_view Pair::*from, std::string_view Pair::*to,
                                     std::string_view layer_from, std::string_view layer_to) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view kind = name.substr(dot);
  std::string_view stem = name.substr(0, dot);
  const bool known = kind == ".weight" || kind == ".bias";
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
    const std::string_view whole = name.substr(name.size() - stem.size() - kind.size());
    for (const Pair& pair : layer_tensors)  // with another ending on each side
      if (pair.*from == whole) return prefix + std::string(pair.*to);
    if (!known) return std::nullopt;
    for (const Pair& pair : layer_tensors)
      if (pair.*from == stem) return prefix + std::string(pair.*to) + std::string(kind);
    return std::nullopt;
  }
  if (!known) return std::nullopt;
  for (const Pair& pair : kWhole)
    if (pair.*from == stem) return std::string(pair.*to) + std::string(kind);
  return std::nullopt;
}

}  // namespace

const GgufArchitecture* stored_gguf_architecture(const GgufHead& head) {
  const auto name = head.metadata.find("general.architecture");
  if (name == head.metadata.end() || !name->second.is_string() || name->second.as_string().empty()) return nullptr;
  const auto count = head.metadata.find(name->second.as_string() + ".expert_count");
  const bool experts = count != head.metadata.end() && count->second != Json(0);
  for (const GgufArchitecture& known : gguf_architectures())
    if (known.name == name->second.as_string() && known.experts == experts) return &known;
  return nullptr;
}

std::string gguf_architecture_names() {
  std::vector<std::string_view> names;
  for (const GgufArchitecture& known : gguf_architectures())
    if (std::ranges::find(names, known.name) == names.end()) names.push_back(known.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::optional<std::string> gguf_tensor_name(std::string_view hf_name, const GgufArchitecture& architecture) {
  return translate(hf_name, architecture.layer_tensors, &Pair::hf, &Pair::gguf, kHfLayer, kGgufLayer);
}

std::optional<std::string> hf_tensor_name(std::string_view gguf_name, const GgufArchitecture& architecture) {
  return translate(gguf_name, architecture.layer_tensors, &Pair::gguf, &Pair::hf, kGgufLayer, kHfLayer);
}

bool is_norm(std::string_view hf_name) {
  return hf_name.ends_with("norm.weight");
}

std::int64_t rotated_heads(std::string_view hf_name, const nn::ModelConfig& config) {
  const nn::AttentionSpec attention = config.block(0).attention;
  if (hf_name.find(".self_attn.q_proj.") != std::string_view::npos) return attention.heads;
  if (hf_name.find(".self_attn.k_proj.") != std::string_view::npos) return attention.kv_heads;
  return 0;
}

}  // namespace quench
