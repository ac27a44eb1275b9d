#pragma once
// Even loads of experts without a term of the loss.

#include "nn/causal_lm.h"
#include "nn/experts/expert_load.h"

namespace quench {

// After a step: moves the bias on the choice of every router that has one by `speed`, up for experts that got fewer
// tokens than the mean, down for those that got more (core/ops/experts/expert_bias.h). `load` is that of the whole step
// over all processes. Nothing waits for the device.
void update_expert_biases(nn::CausalLm& model, const nn::ExpertLoad& load, float speed);

}  // namespace quench
