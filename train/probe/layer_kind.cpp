#include "train/probe/layer_kind.h"

namespace quench {

std::vector<LayerKind> layer_kinds(const nn::ModelConfig& model) {
  const nn::BlockSpec block = model.block(0);
  const nn::AttentionSpec& attention = block.attention;
  const std::int64_t hidden = model.hidden_size, inner = block.feed_forward.intermediate_size;
  const bool mlp_bias = block.feed_forward.bias;
  return {
      {"qkv_proj", hidden, attention.query_width() + 2 * attention.kv_width(), attention.qkv_bias, Neighbour::norm,
       Neighbour::attention},
      {"o_proj", attention.query_width(), hidden, attention.output_bias, Neighbour::attention, Neighbour::norm},
      {"gate_up_proj", hidden, 2 * inner, mlp_bias, Neighbour::norm, Neighbour::activation},
      {"down_proj", inner, hidden, mlp_bias, Neighbour::activation, Neighbour::norm},
  };
}

std::string_view last_component(std::string_view layer) noexcept {
  const std::size_t dot = layer.rfind('.');
  return dot == std::string_view::npos ? layer : layer.substr(dot + 1);
}

}  // namespace quench
