#pragma once
// Whole parameters of a sharded model, one at a time: for exports.

#include <functional>

#include "distributed/ranks.h"
#include "nn/causal_lm.h"

namespace quench::distributed {

// The values of a parameter of which every rank of a copy of the model holds a part. Collective over these.
[[nodiscard]] Tensor gather_parameter(const nn::Parameter& parameter, const Ranks& ranks);

// Runs `work` on rank 0, which may ask for whole parameters of the model, in any order, while the other ranks give
// their parts. Where it throws, all ranks throw. Collective.
void with_whole_parameters(nn::CausalLm& model, const Ranks& ranks,
                           const std::function<void(const std::function<Tensor(const nn::Parameter&)>& whole)>& work);

}  // namespace quench::distributed
