#include "export/formats/gguf/experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "core/system/check.h"

namespace quench {
namespace {

using ExpertNames = nn::ExpertsSpec::Names;

struct Projection {
  std::string_view ExpertNames::*hf;
  std::string_view gguf;
};
constexpr std::array kProjections = {Projection{&ExpertNames::gate, "ffn_gate_exps"},
                                     Projection{&ExpertNames::up, "ffn_up_exps"},
                                     Projection{&ExpertNames::down, "ffn_down_exps"}};
constexpr std::string_view kHfLayers = "model.layers.", kGgufLayers = "blk.";

// "3" and "mlp.experts" of "model.layers.3.mlp.experts".
struct LayerPart {
  std::string_view layer, rest;
};
std::optional<LayerPart> split_layer(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  const auto digits = static_cast<std::size_t>(end - name.data());
  if (error != std::errc() || digits >= name.size() || name[digits] != '.') return std::nullopt;
  return LayerPart{name.substr(0, digits), name.substr(digits + 1)};
}

}  // namespace

std::optional<std::string> gguf_experts_name(std::string_view hf_name, const nn::ExpertsSpec& experts) {
  const auto layer = split_layer(hf_name, kHfLayers);
  const std::string prefix = fmt::format("{}.", experts.names.experts);
  if (!layer || !layer->rest.starts_with(prefix)) return std::nullopt;
  const std::string_view of_expert = layer->rest.substr(prefix.size());
  const std::string_view projection = of_expert.substr(std::min(of_expert.find('.'), of_expert.size() - 1) + 1);
  const std::string_view stem = projection.substr(0, projection.rfind('.'));
  for (const Projection& one : kProjections)
    if (experts.names.*one.hf == stem)
      return fmt::format("{}{}.{}{}", kGgufLayers, layer->layer, one.gguf, projection.substr(stem.size()));
  return std::nullopt;
}

std::vector<GgufExpert> gguf_experts_of(const GgufEntry& entry, const nn::ExpertsSpec& experts,
                                        std::string_view source) {
  const auto layer = split_layer(entry.name, kGgufLayers);
  if (!layer || experts.count == 0) return {};
  const std::string_view stem = layer->rest.substr(0, layer->rest.rfind('.'));
  const auto projection = std::ranges::find(kProjections, stem, &Projection::gguf);
  if (projection == kProjections.end()) return {};
  QUENCH_CHECK_AS(ErrorCode::corrupt, entry.shape.rank() >= 2 && entry.shape[0] == experts.count,
                  "{}: {} has shape {}, expected {} experts", source, entry.name, entry.shape.to_string(),
                  experts.count);
  std::vector<GgufExpert> all;
  for (std::int64_t expert = 0; expert < experts.count; ++expert) {
    GgufEntry one = entry;
    one.shape = entry.shape.rank() == 2 ? Shape{entry.shape[1]} : Shape{entry.shape[1], entry.shape[2]};
    one.bytes = entry.bytes / static_cast<std::uint64_t>(experts.count);
    one.begin += static_cast<std::uint64_t>(expert) * one.bytes;
    all.push_back({fmt::format("{}{}.{}.{}.{}{}", kHfLayers, layer->layer, experts.names.experts, expert,
                               experts.names.*projection->hf, layer->rest.substr(stem.size())),
                   std::move(one)});
  }
  return all;
}

}  // namespace quench
