// High-precision recipe: GEMMs in training.dtype (bf16 or f32), accumulated in f32.

#include "recipes/recipe.h"

namespace quench::recipes {
namespace {

LinearPlan plan_bf16(const nn::LinearInfo&, const RecipeOptions&) {
  return {nn::high_precision_linear_kernel(), {}};
}

}  // namespace

const Recipe kBf16{"bf16",
                   "no quantization: GEMMs in training.dtype, accumulated in f32",
                   plan_bf16,
                   {.output_relative_l2 = 5e-3, .gradient_relative_l2 = 1e-2, .loss_relative = 1e-2},
                   {.required = RequiredLayers::none}};

}  // namespace quench::recipes
