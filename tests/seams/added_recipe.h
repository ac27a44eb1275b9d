#pragma once
// A recipe that the table's file does not know: int3 weights, a scale for each row, trained for as in
// quantization-aware training.

#include "core/system/choice_table.h"
#include "recipes/qat/qat_linear.h"
#include "recipes/recipe.h"

namespace quench::testing {

inline recipes::LinearPlan plan_int3_rows(const nn::LinearInfo& layer, const recipes::RecipeOptions& options) {
  const recipes::FakeFormat weight{.kind = recipes::FakeFormat::Kind::integer, .integers = {.bits = 3}};
  if (const auto problem = weight.problem(layer.out_features, layer.in_features)) return {nullptr, problem->reason, {}};
  const recipes::QatScheme scheme{"int3_rows", {}, weight};
  return {std::make_shared<recipes::QatLinear>(scheme, options.keep_weights), {}, {}};
}

inline constexpr std::string_view kInt3Keys[] = {"keep_weights"};

// A row of normal values loses a quarter (root mean square) to steps of a 3.5th of its largest magnitude.
inline const Registered<recipes::Recipe> kInt3Rows{
    {"int3_rows",
     "trains for int3 weights (per channel)",
     plan_int3_rows,
     {.output_relative_l2 = 0.35, .gradient_relative_l2 = 0.4, .loss_relative = 0.15},
     {.keys = kInt3Keys}}};

}  // namespace quench::testing
