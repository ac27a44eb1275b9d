#pragma once
// A precision recipe: a value that says, for every linear layer, how its three products are computed.
//
// A new recipe is one new file, one line in table.cpp and one JSON file in configs/recipes/; the shared tests
// (gradients, loss curve, resume) run over every entry of the table with the tolerances it declares.

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "nn/linear_kernel.h"

namespace quench::recipes {

// What the shared tests allow, against the same computation in f32.
struct RecipeTolerances {
  double output_relative_l2 = 0;    // of one layer's y
  double gradient_relative_l2 = 0;  // of one layer's dx and dw
  double loss_relative = 0;         // of the final loss of a short training run against f32
};

// Either a kernel, or the reason why the layer stays in high precision.
struct LinearPlan {
  std::shared_ptr<const nn::LinearKernel> kernel;
  std::string skipped_because;
};

struct Recipe {
  std::string_view name;
  std::string_view summary;  // one line for `quench config ls`
  LinearPlan (*plan)(const nn::LinearInfo& layer);
  RecipeTolerances tolerances;
};

// All recipes, the default first.
[[nodiscard]] std::span<const Recipe> recipe_table();
// Throws bad_config with the list of names for an unknown one.
[[nodiscard]] const Recipe& find_recipe(std::string_view name);

extern const Recipe kBf16;

}  // namespace quench::recipes
