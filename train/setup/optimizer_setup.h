#pragma once
// From a run's config to its optimizer.

#include <memory>

#include "distributed/ranks.h"
#include "nn/causal_lm.h"
#include "nn/optim/optimizer.h"
#include "train/config/run_config.h"

namespace quench {

// `ranks`: of a run of several processes, whose parameters are shards; null: one process.
[[nodiscard]] std::unique_ptr<nn::Optimizer> make_optimizer(nn::CausalLm& model, const RunConfig& config,
                                                            const distributed::Ranks* ranks = nullptr);

}  // namespace quench
