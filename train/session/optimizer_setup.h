#pragma once
// Optimizer of a run, with its parameter groups and average of weights.

#include <memory>

#include "distributed/ranks.h"
#include "nn/decoder/causal_lm.h"
#include "nn/optim/optimizer.h"
#include "train/config/run_config.h"

namespace quench {

// `ranks`: of sharded parameters.
[[nodiscard]] std::unique_ptr<nn::Optimizer> make_optimizer(
    nn::CausalLm& model, const RunConfig& config, const distributed::Ranks& ranks = *distributed::Ranks::single());

}  // namespace quench
