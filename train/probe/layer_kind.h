#pragma once
// Linear layers of a decoder layer: shapes and adjacent functions.

#include <string>
#include <string_view>
#include <vector>

#include "nn/spec/model_config.h"

namespace quench {

// Producer of a layer's input and consumer of its output. Norms and gated activations can fuse quantization outputs for
// low-precision layers (autograd/fused_value.h); attention cannot.
enum class Neighbour { attention, norm, activation };

struct LayerKind {
  std::string name;  // last component of the module's name: "qkv_proj"
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  bool has_bias = false;
  Neighbour before = Neighbour::norm;
  Neighbour after = Neighbour::norm;

  // Glob for recipe.filter.
  [[nodiscard]] std::string pattern() const { return "*." + name; }
};

// In forward order.
[[nodiscard]] std::vector<LayerKind> layer_kinds(const nn::ModelConfig& model);

// "down_proj" of "model.layers.3.mlp.down_proj".
[[nodiscard]] std::string_view last_component(std::string_view layer) noexcept;

}  // namespace quench
