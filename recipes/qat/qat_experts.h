#pragma once
// Expert layers with fake-quantized weights and inputs.

#include <memory>

#include "nn/experts/expert_kernel.h"
#include "recipes/qat/qat_linear.h"

namespace quench::recipes {

// As QatLinear, each expert's weight quantized separately, and tokens quantized before the permutation. Rows of the
// down projection include the router weight, which rowwise scales absorb.
[[nodiscard]] std::shared_ptr<const nn::ExpertKernel> qat_experts(const QatScheme& scheme, bool keep_weight);

}  // namespace quench::recipes
