#pragma once
// Parameters of a whole model on rank 0, from the pipeline stages that hold them.

#include <functional>

#include "distributed/ranks.h"
#include "nn/decoder/causal_lm.h"
#include "nn/modules/whole_rows.h"

namespace quench::distributed {

// with_whole_parameters() of all stages: `all` is the model of one stage itself, else a description of the whole one on
// the meta device, without adapters; `whole` gathers its parameters, which all ranks then hold one at a time.
// Collective.
void with_whole_model(nn::CausalLm& model, const Ranks& ranks,
                      const std::function<void(nn::CausalLm& all, const nn::WholeRows& whole)>& work);

}  // namespace quench::distributed
