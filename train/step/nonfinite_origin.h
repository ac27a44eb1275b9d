#pragma once
// Where the first NaN or infinity of a step came from. A backward pass spreads it to the gradient of every parameter,
// so it is looked for where the step began: in the weights, then in the forward pass, which is made again for that.

#include <span>
#include <string>

#include "data/sampling/loader.h"
#include "nn/causal_lm.h"

namespace quench {

// The first parameter in forward order that is not finite, as "weight of model.layers.3.mlp.down_proj"; empty: all are.
[[nodiscard]] std::string first_nonfinite_weight(nn::CausalLm& model);

// The first weight, or operand of the forward pass of these micro-batches, that is not finite: "input of ...",
// "output of ...", "logits". Empty where the forward pass is finite. Gradients stay as they are.
[[nodiscard]] std::string first_nonfinite_forward(nn::CausalLm& model, std::span<const Batch> batches,
                                                  const LmHeadLossOptions& loss);

// "gradient of ...": of the parameters whose gradients are not finite the last in forward order, where the backward
// pass came first. Empty: all are finite.
[[nodiscard]] std::string first_nonfinite_gradient(nn::CausalLm& model);

}  // namespace quench
