#pragma once
// Channel scales in the producer of a layer's input: norm or linear layer.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nn/decoder/causal_lm.h"

namespace quench {

// By path.
using ModuleMap = std::map<std::string, nn::Module*>;
[[nodiscard]] ModuleMap modules_of(nn::CausalLm& model);

// The producer's output is read by the consumer only.
struct ScaleFusion {
  nn::Module* producer = nullptr;
  // Rows of the producer's weight, per consumer column; empty: a norm.
  std::vector<std::int64_t> rows;
  nn::Linear* consumer = nullptr;
  std::string consumer_name;
};

// Norm and following projection; with `linear_producers` also v_proj and o_proj, up_proj and down_proj.
[[nodiscard]] std::vector<ScaleFusion> scale_fusions_of_layer(const ModuleMap& modules, const nn::ModelConfig& config,
                                                              std::int64_t layer, bool linear_producers);

// Divides the producer's outputs by f32 [K] factors, multiplies the consumer's columns. Returns the applied factors,
// rounded to the producer's dtype.
Tensor fuse_scales(const ScaleFusion& fusion, const Tensor& factors);

// f32, CPU.
[[nodiscard]] Tensor values_of(const nn::Parameter& parameter);
void set_values(nn::Parameter& parameter, const Tensor& values);

}  // namespace quench
