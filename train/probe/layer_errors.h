#pragma once
// Per-layer errors of recipes on one micro-batch of a run.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/sampling/loader.h"
#include "nn/decoder/causal_lm.h"
#include "recipes/recipe.h"
#include "train/config/run_config.h"

namespace quench {

// Relative L2 errors of a layer's GEMM results against high precision; NaN if not finite.
struct ProductErrors {
  double y = 0;
  double dx = 0;
  double dw = 0;
};

struct LayerError {
  std::string layer;  // module path
  std::string recipe;
  ProductErrors errors;
};

// Relative L2 error as SQNR in decibels.
[[nodiscard]] double decibels(double relative_error);

// ||x - exact|| / ||exact||.
[[nodiscard]] double relative_error(const Tensor& x, const Tensor& exact);

// Converted linear layers by recipe name: by path, or by last component for a whole kind.
using ConvertedLayers = std::map<std::string, std::vector<std::string>>;

// Runs forward and backward in high precision, and additionally every GEMM of the named layers under each recipe. Peak
// memory: weights plus one decoder layer (full recompute; parameter gradients are dropped as they are produced, also
// after this call). Throws nonfinite for a NaN or infinite loss of the model itself.
[[nodiscard]] std::vector<LayerError> measure_layer_errors(nn::CausalLm& model, const Batch& batch,
                                                           const LmHeadLossOptions& loss, const ConvertedLayers& layers,
                                                           const recipes::RecipeOptions& options);

}  // namespace quench
