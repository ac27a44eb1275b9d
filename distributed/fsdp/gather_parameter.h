#pragma once
// Full parameters of a sharded model, for export.

#include <functional>
#include <vector>

#include "distributed/ranks.h"
#include "nn/modules/whole_rows.h"

namespace quench::distributed {

// Collective over one model replica.
[[nodiscard]] Tensor gather_parameter(const nn::Parameter& parameter, const Ranks& ranks);

// Runs `work` on rank 0, which gathers these parameters in any order while the other ranks serve their shards. If it
// throws, all throw; a rank that fails in a gather notifies the others. Collective; equal `parameters` on all ranks. A
// single process: `work` gets an empty function, since its parameters are whole. `gather`, collective over all ranks,
// in place of gather_parameter().
void with_whole_parameters(const std::vector<nn::Parameter*>& parameters, const Ranks& ranks,
                           const std::function<void(const nn::WholeRows& whole)>& work,
                           const nn::WholeRows& gather = {});

}  // namespace quench::distributed
