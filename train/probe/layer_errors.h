#pragma once
// What recipes lose, layer by layer, on one micro-batch of a run.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/sampling/loader.h"
#include "nn/causal_lm.h"
#include "recipes/recipe.h"
#include "train/config/run_config.h"

namespace quench {

// Relative L2 errors of a layer's products against the same in high precision; NaN where one is not finite.
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

// Signal to noise ratio in decibels of a relative L2 error.
[[nodiscard]] double decibels(double relative_error);

// ||x - exact|| / ||exact||.
[[nodiscard]] double relative_error(const Tensor& x, const Tensor& exact);

// Under the name of a recipe the linear layers that it converts: by path, or by last component for all of a kind.
using ConvertedLayers = std::map<std::string, std::vector<std::string>>;

// Runs the model forwards and backwards in high precision, every product of the named layers beside it under each
// recipe. Uses what one decoder layer needs beside the weights: layers run again in the backward pass, and gradients of
// parameters are dropped as they come, from then on too. Throws nonfinite when the model's own loss is NaN or infinite.
[[nodiscard]] std::vector<LayerError> measure_layer_errors(nn::CausalLm& model, const Batch& batch,
                                                           const LmHeadLossOptions& loss, const ConvertedLayers& layers,
                                                           const recipes::RecipeOptions& options);

}  // namespace quench
