#pragma once
// Fusion of channel scales into the norm or linear layer that produces a linear layer's input.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nn/causal_lm.h"

namespace quench {

// The modules of a model by their paths.
using ModuleMap = std::map<std::string, nn::Module*>;
[[nodiscard]] ModuleMap modules_of(nn::CausalLm& model);

// A producer whose output is the input of one linear layer (the consumer) and of nothing else.
struct ScaleFusion {
  nn::Module* producer = nullptr;
  // Rows of the producer's weight, one for each column of the consumer in this order; empty: a norm.
  std::vector<std::int64_t> rows;
  nn::Linear* consumer = nullptr;
  std::string consumer_name;
};

// Scale fusions that the modules of decoder layer `layer` allow: norm and following projection; with `linear_producers`
// also rows of v_proj and o_proj, rows of up_proj and down_proj.
[[nodiscard]] std::vector<ScaleFusion> scale_fusions_of_layer(const ModuleMap& modules, const nn::ModelConfig& config,
                                                              std::int64_t layer, bool linear_producers);

// Divides the producer's outputs by the factors f32 [K] and multiplies the consumer's columns. Returns the factors that
// the producer's dtype could hold: those that were used.
Tensor fuse_scales(const ScaleFusion& fusion, const Tensor& factors);

// A parameter's values in f32 on the CPU, and back.
[[nodiscard]] Tensor values_of(const nn::Parameter& parameter);
void set_values(nn::Parameter& parameter, const Tensor& values);

}  // namespace quench
