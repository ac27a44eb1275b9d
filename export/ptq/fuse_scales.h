#pragma once
// Fusion of channel scales into the norm or linear layer that produces a layer's input.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nn/causal_lm.h"

namespace quench {

// Modules by path.
using ModuleMap = std::map<std::string, nn::Module*>;
[[nodiscard]] ModuleMap modules_of(nn::CausalLm& model);

// Producer whose output is read by one linear layer (the consumer) only.
struct ScaleFusion {
  nn::Module* producer = nullptr;
  // Row of the producer's weight per consumer column; empty: a norm.
  std::vector<std::int64_t> rows;
  nn::Linear* consumer = nullptr;
  std::string consumer_name;
};

// Scale fusions in decoder layer `layer`: norm and following projection; with `linear_producers` also v_proj and
// o_proj, up_proj and down_proj.
[[nodiscard]] std::vector<ScaleFusion> scale_fusions_of_layer(const ModuleMap& modules, const nn::ModelConfig& config,
                                                              std::int64_t layer, bool linear_producers);

// Divides the producer's outputs by f32 [K] factors and multiplies the consumer's columns. Returns the factors after
// rounding to the producer's dtype, which were applied.
Tensor fuse_scales(const ScaleFusion& fusion, const Tensor& factors);

// Parameter values in f32 on the CPU, and the inverse.
[[nodiscard]] Tensor values_of(const nn::Parameter& parameter);
void set_values(nn::Parameter& parameter, const Tensor& values);

}  // namespace quench
