#include "export/mixes/tensor_types.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <numeric>

namespace quench {
namespace {

constexpr std::string_view kHead = "output.weight", kTable = "token_embd.weight", kLayer = "blk.";

struct RoleName {
  std::string_view part;
  TensorRole role;
};
constexpr std::array kRoles = {RoleName{"attn_qkv.weight", TensorRole::value},
                               RoleName{"attn_kv_b.weight", TensorRole::value},
                               RoleName{"attn_v.weight", TensorRole::value},
                               RoleName{"attn_k.weight", TensorRole::key},
                               RoleName{"attn_q.weight", TensorRole::query},
                               RoleName{"attn_output.weight", TensorRole::attention_output},
                               RoleName{"ffn_up", TensorRole::up},
                               RoleName{"ffn_gate", TensorRole::gate},
                               RoleName{"ffn_down", TensorRole::down}};

// -1 for tensors of no layer.
std::int64_t layer_of(std::string_view name) {
  if (!name.starts_with(kLayer)) return -1;
  std::int64_t layer = -1;
  (void)std::from_chars(name.data() + kLayer.size(), name.data() + name.size(), layer);
  return layer;
}

// Place of a tensor among those of its role.
struct Place {
  std::int64_t at = 0, count = 0;

  [[nodiscard]] std::uint32_t conditions() const {
    const std::int64_t eighth = count / 8, last = 7 * count / 8;
    std::uint32_t set = 0;
    if (at < count / 16) set |= kFirst16th;
    if (at < eighth) set |= kFirst8th;
    if (at >= eighth && at < last) set |= kMiddle;
    if (at < eighth || at >= last || (at - eighth) % 3 == 2) set |= kMoreBits;
    if (at < 2) set |= kFirstTwo;
    if (at < 4) set |= kFirstFour;
    return set;
  }
};

std::uint32_t conditions_of(const MixModel& model, bool has_matrix) {
  std::uint32_t set = has_matrix ? kMatrix : kNoMatrix;
  if (model.heads_per_key_head >= 4) set |= kGrouped4;
  if (model.experts >= 4) set |= kFourExperts;
  if (model.experts == 8) set |= kEightExperts;
  return set;
}

std::string_view type_of(const GgufMix& mix, TensorRole role, std::uint32_t conditions, const MixModel& model) {
  std::string_view type = mix.main;
  if (role == TensorRole::table && !mix.table.empty()) type = mix.table;
  for (const MixRule& rule : mix.rules)
    if (rule.role == role && (rule.conditions & ~conditions) == 0) {
      type = rule.type;
      break;
    }
  if (!mix.exceptions) return type;
  const bool value = role == TensorRole::value, key = role == TensorRole::key;
  if (value && model.wide_values && (type == "Q3_K" || type == "Q4_K")) type = "Q5_K";
  if ((value || key) && model.experts == 8) type = "Q8_0";
  return type;
}

}  // namespace

TensorRole role_of_tensor(std::string_view name) {
  if (name == kHead) return TensorRole::head;
  if (name == kTable) return TensorRole::table;
  const auto* found = std::ranges::find_if(
      kRoles, [&](const RoleName& role) { return name.find(role.part) != std::string_view::npos; });
  return found == kRoles.end() ? TensorRole::other : found->role;
}

std::vector<std::string_view> mix_types(const GgufMix& mix, std::span<const MixTensor> tensors, const MixModel& model,
                                        bool has_matrix) {
  const bool tied = std::ranges::none_of(tensors, [](const MixTensor& one) { return one.name == kHead; });
  std::vector<std::size_t> order(tensors.size());  // that of llama.cpp's loader, in which it counts
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return std::pair(layer_of(tensors[a].name), std::string_view(tensors[a].name)) <
           std::pair(layer_of(tensors[b].name), std::string_view(tensors[b].name));
  });
  const auto values = std::ranges::count_if(
      tensors, [](const MixTensor& one) { return role_of_tensor(one.name) == TensorRole::value; });
  const bool by_layer = model.experts > 1;
  const std::uint32_t common = conditions_of(model, has_matrix);
  std::map<TensorRole, std::int64_t> seen;
  std::vector<std::string_view> types(tensors.size());
  for (const std::size_t i : order) {
    const MixTensor& tensor = tensors[i];
    TensorRole role = role_of_tensor(tensor.name);
    if (role == TensorRole::table && tied) role = TensorRole::head;
    if (role == TensorRole::head) {
      const std::int64_t elements = fallback_type(mix.main).empty() ? 32 : 256;
      types[i] = tensor.columns % elements == 0 ? mix.head : "Q8_0";
      continue;
    }
    const std::int64_t count = seen[role]++;
    const bool counted = role == TensorRole::value || !by_layer || (role == TensorRole::down && mix.counts_down);
    const Place place{counted ? count : layer_of(tensor.name), role == TensorRole::value ? values : model.layers};
    types[i] = type_of(mix, role, common | place.conditions(), model);
  }
  return types;
}

std::string_view fallback_type(std::string_view type) {
  if (type == "Q4_K") return "Q5_0";
  if (type == "Q5_K") return "Q5_1";
  if (type == "Q6_K") return "Q8_0";
  if (type == "Q2_K" || type == "Q3_K" || type.starts_with("TQ")) return "Q4_0";
  if (type.starts_with("IQ") && type != "IQ4_NL") return "IQ4_NL";
  return {};
}

bool needs_matrix(const GgufMix& mix, std::string_view tensor, std::string_view type) {
  if (tensor == kHead || tensor == kTable) return false;
  return type.starts_with("IQ2_") || type.starts_with("IQ1_") || type == "IQ3_XXS" ||
         (mix.needs_matrix && type == "Q2_K");
}

}  // namespace quench
