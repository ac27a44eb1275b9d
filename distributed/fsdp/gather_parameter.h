#pragma once
// Full parameters of a sharded model, one at a time, for export.

#include <functional>
#include <vector>

#include "distributed/ranks.h"
#include "nn/whole_rows.h"

namespace quench::distributed {

// Full values of a parameter. Collective over the ranks of one model replica.
[[nodiscard]] Tensor gather_parameter(const nn::Parameter& parameter, const Ranks& ranks);

// Runs `work` on rank 0, which may gather any of these parameters in any order while the other ranks serve their
// shards. If it throws, all ranks throw; a rank that fails during a gather notifies the others. Collective;
// `parameters` must be equal on all ranks.
void with_whole_parameters(const std::vector<nn::Parameter*>& parameters, const Ranks& ranks,
                           const std::function<void(const nn::WholeRows& whole)>& work);

}  // namespace quench::distributed
