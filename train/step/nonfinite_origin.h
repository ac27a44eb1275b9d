#pragma once
// First NaN or infinity of a step. The backward pass spreads it to all gradients: weights are checked, then a repeated
// forward pass.

#include <span>
#include <string>

#include "data/sampling/loader.h"
#include "nn/decoder/causal_lm.h"

namespace quench {

// In forward order, e.g. "weight of model.layers.3.mlp.down_proj"; empty: none.
[[nodiscard]] std::string first_nonfinite_weight(nn::CausalLm& model);

// First weight or forward operand of these micro-batches: "input of ...", "output of ...", "logits". Empty if finite.
// Gradients are unchanged.
[[nodiscard]] std::string first_nonfinite_forward(nn::CausalLm& model, std::span<const Batch> batches,
                                                  const LmHeadLossOptions& loss);

// "gradient of ...": last such parameter in forward order, i.e. first of the backward pass. Empty: none.
[[nodiscard]] std::string first_nonfinite_gradient(nn::CausalLm& model);

}  // namespace quench
