#pragma once
// Whole parameters of a sharded model, one at a time: for exports.

#include <functional>
#include <vector>

#include "distributed/ranks.h"
#include "nn/whole_rows.h"

namespace quench::distributed {

// The values of a parameter of which every rank of a copy of the model holds a part. Collective over these.
[[nodiscard]] Tensor gather_parameter(const nn::Parameter& parameter, const Ranks& ranks);

// Runs `work` on rank 0, which may ask for any of these parameters whole, in any order, while the other ranks give
// their parts. Where it throws, all ranks throw; where a rank fails in the middle of a gather, it tells the others,
// which end soon. Collective; the parameters are the same ones on all ranks.
void with_whole_parameters(const std::vector<nn::Parameter*>& parameters, const Ranks& ranks,
                           const std::function<void(const nn::WholeRows& whole)>& work);

}  // namespace quench::distributed
