// MX recipes: 32 elements share an E8M0 scale, semantics of TorchAO's MXFP8 training.

#include <array>

#include "recipes/emulated/layers.h"
#include "recipes/float8/hardware.h"
#include "recipes/mx/linear.h"
#include "recipes/recipe.h"

namespace quench::recipes {
namespace {

constexpr std::array<std::string_view, 2> kKeys{"mx_scale", "high_precision_gemms"};

LinearPlan plan_mx(const nn::LinearInfo& layer, const RecipeOptions& options) {
  if (layer.name == nn::kHeadName) return {nullptr, "the head's loss has no MX GEMMs", {}};
  const EmulatedGemms gemms = EmulatedGemms::without(options.high_precision);
  if (!gemms.any()) return {nullptr, kNoProductLeft, {}, kHighPrecisionKey};
  if (!options.emulate && mxfp8_path(options.target.value_or(layer.device)) == GemmPath::native)
    return {mx_linear(options.mx_scale, gemms), {}, {}};
  return {emulated_linear(mx_rounding(options.mx_scale), gemms, {}), {}, {}};
}

ExpertPlan plan_experts(const nn::LinearInfo&, const RecipeOptions& options) {
  const EmulatedGemms gemms = EmulatedGemms::without(options.high_precision);
  if (!gemms.any()) return {nullptr, kNoProductLeft, kHighPrecisionKey};
  return {emulated_experts(mx_rounding(options.mx_scale), gemms, {}), {}};
}

}  // namespace

// Error bounds as in recipes/float8/recipes.cpp.
const Recipe kMxfp8{"mxfp8",
                    "e4m3 with a power-of-two scale for every 32 elements; bf16 GEMMs before Blackwell",
                    plan_mx,
                    {.output_relative_l2 = 0.05, .gradient_relative_l2 = 0.06, .loss_relative = 0.03},
                    {.float8 = {}, .mxfp8 = true, .keys = kKeys},
                    plan_experts};

}  // namespace quench::recipes
