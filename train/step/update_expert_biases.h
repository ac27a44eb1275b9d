#pragma once
// Auxiliary-loss-free load balancing.

#include "nn/decoder/causal_lm.h"
#include "nn/experts/expert_load.h"

namespace quench {

// After a step: moves expert biases by `speed`, up below the mean load, down above (core/ops/experts/expert_bias.h).
// `load`: whole step, all ranks. Asynchronous.
void update_expert_biases(nn::CausalLm& model, const nn::ExpertLoad& load, float speed);

}  // namespace quench
