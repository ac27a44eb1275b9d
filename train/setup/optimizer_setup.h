#pragma once
// From a run's config to its optimizer.

#include <memory>

#include "nn/causal_lm.h"
#include "nn/optim/optimizer.h"
#include "train/config/run_config.h"

namespace quench {

[[nodiscard]] std::unique_ptr<nn::Optimizer> make_optimizer(nn::CausalLm& model, const RunConfig& config);

}  // namespace quench
