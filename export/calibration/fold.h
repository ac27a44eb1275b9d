#pragma once
// Where factors of a layer's input channels go: into the norm or the linear layer that makes the inputs.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nn/causal_lm.h"

namespace quench {

// The modules of a model by their paths.
using ModuleMap = std::map<std::string, nn::Module*>;
[[nodiscard]] ModuleMap modules_of(nn::CausalLm& model);

// A module whose outputs are the inputs of one linear layer and of nothing else.
struct Fold {
  nn::Module* producer = nullptr;
  // Rows of the producer's weight, one for each column of the consumer in this order; empty: a norm.
  std::vector<std::int64_t> rows;
  nn::Linear* consumer = nullptr;
  std::string consumer_name;
};

// The folds of decoder layer `layer` that its modules allow: norms into the layers behind them, and with
// `linear_producers` the rows of v_proj into o_proj and those of up_proj into down_proj.
[[nodiscard]] std::vector<Fold> folds_of_layer(const ModuleMap& modules, const nn::ModelConfig& config,
                                               std::int64_t layer, bool linear_producers);

// Divides the producer's outputs by the factors f32 [K] and multiplies the consumer's columns. Returns the factors that
// the producer's dtype could hold: those that were used.
Tensor apply_fold(const Fold& fold, const Tensor& factors);

// A parameter's values in f32 on the CPU, and back.
[[nodiscard]] Tensor values_of(const nn::Parameter& parameter);
void set_values(nn::Parameter& parameter, const Tensor& values);

}  // namespace quench
