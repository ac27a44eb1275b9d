#pragma once
// From a run's config to its optimizer.

#include <memory>

#include "nn/causal_lm.h"
#include "nn/optim/adamw.h"
#include "train/config/run_config.h"

namespace quench {

[[nodiscard]] std::unique_ptr<nn::AdamW> make_optimizer(nn::CausalLm& model, const RunConfig& config);

}  // namespace quench
