#pragma once
// Expert layers in rowwise float8 with power-of-two scales, constant along the reduction axis, for wgrad within each
// expert's rows.

#include <memory>

#include "nn/experts/expert_kernel.h"
#include "recipes/emulated/layers.h"
#include "recipes/recipe.h"

namespace quench::recipes {

struct Float8ExpertOptions {
  EmulatedGemms float8;
  bool fast_accumulation = true;  // for all GEMMs, as in TorchAO
  bool keep_weights = false;      // across the micro-batches of a step
  LayerHealth health;
};

// Both feature sizes must be multiples of 16 on GPUs.
[[nodiscard]] std::shared_ptr<const nn::ExpertKernel> float8_experts(const Float8ExpertOptions& options);

}  // namespace quench::recipes
