#pragma once
// From a run's config to its optimizer; and where a bad gradient came from.

#include <memory>
#include <string>

#include "nn/causal_lm.h"
#include "nn/optim/optimizer.h"
#include "train/config/run_config.h"

namespace quench {

[[nodiscard]] std::unique_ptr<nn::Optimizer> make_optimizer(nn::CausalLm& model, const RunConfig& config);

// optimizer.offload_ratio. Throws bad_config on a CPU, where there is no other memory to go to.
[[nodiscard]] double state_offload_ratio(const RunConfig& config, Device device);

// The first parameter, in the order of the model, whose gradient holds a NaN or an infinity; empty if none does.
[[nodiscard]] std::string first_nonfinite_gradient(nn::CausalLm& model);

}  // namespace quench
