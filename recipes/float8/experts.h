#pragma once
// The linear layers of experts in float8 by row, with power-of-two scales: each of the three products reads codes whose
// scales run along its contraction, for the weight's gradient within each expert's rows
// (core/ops/experts/grouped_float8.h).

#include <memory>

#include "nn/experts/expert_kernel.h"
#include "recipes/emulated/layers.h"
#include "recipes/recipe.h"

namespace quench::recipes {

struct Float8ExpertOptions {
  EmulatedGemms float8;           // the products of float8 operands; the others run in high precision
  bool fast_accumulation = true;  // of all of them (core/ops/scaled_gemm.h), as in TorchAO
  bool keep_weights = false;      // between the micro-batches of a step
  LayerHealth health;
};

// On GPUs the products run on the float8 tensor cores, which want both sizes of a layer to be multiples of 16.
[[nodiscard]] std::shared_ptr<const nn::ExpertKernel> float8_experts(const Float8ExpertOptions& options);

}  // namespace quench::recipes
