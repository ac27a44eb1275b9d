#pragma once
// The linear layers of experts whose products see their operands as they will be when they are stored in few bits.

#include <memory>

#include "nn/experts/expert_kernel.h"
#include "recipes/qat/qat_linear.h"

namespace quench::recipes {

// As QatLinear, with the weight of each expert quantized by itself. Tokens are quantized before they are copied to
// their experts' rows. The rows of a second product come with the router's weight of their token in them
// (core/ops/experts/token_permutation.h), which scales of a row take up: codes are those without it.
[[nodiscard]] std::shared_ptr<const nn::ExpertKernel> qat_experts(const QatScheme& scheme, bool keep_weight);

}  // namespace quench::recipes
