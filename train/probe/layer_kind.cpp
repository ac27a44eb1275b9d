#include "train/probe/layer_kind.h"

namespace quench {

std::vector<LayerKind> layer_kinds(const nn::ModelConfig& model) {
  const std::int64_t hidden = model.hidden_size, inner = model.intermediate_size;
  return {
      {"qkv_proj", hidden, model.qkv_rows(), model.qkv_bias, Neighbour::norm, Neighbour::attention},
      {"o_proj", model.num_attention_heads * model.head_dim, hidden, model.output_bias, Neighbour::attention,
       Neighbour::norm},
      {"gate_up_proj", hidden, 2 * inner, model.mlp_bias, Neighbour::norm, Neighbour::activation},
      {"down_proj", inner, hidden, model.mlp_bias, Neighbour::activation, Neighbour::norm},
  };
}

std::string_view last_component(std::string_view layer) noexcept {
  const std::size_t dot = layer.rfind('.');
  return dot == std::string_view::npos ? layer : layer.substr(dot + 1);
}

}  // namespace quench
