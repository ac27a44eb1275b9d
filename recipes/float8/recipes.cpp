// Float8 and int8 recipes: dynamic or delayed scaling, semantics of TorchAO's float8 and int8 mixed-precision training.
// Fused projections (QKV; gate and up) are one matrix with one tensorwise scale.

#include <algorithm>
#include <array>

#include "core/system/check.h"
#include "recipes/emulated/layers.h"
#include "recipes/float8/block.h"
#include "recipes/float8/experts.h"
#include "recipes/float8/linear.h"
#include "recipes/recipe.h"

namespace quench::recipes {
namespace {

constexpr Float8Operand kTensor{ElementFormat::e4m3, Float8Scaling::tensor};
constexpr Float8Operand kRow{ElementFormat::e4m3, Float8Scaling::row};
// Gradients span more binades than one e4m3 scale covers.
constexpr Float8Operand kGradientTensor{ElementFormat::e5m2, Float8Scaling::tensor};

constexpr Float8Scheme kTensorwise{
    .name = "float8_tensorwise",
    .forward = Float8Product{.left = kTensor, .right = kTensor},
    .dgrad = Float8Product{.left = kGradientTensor, .right = kTensor},
    .wgrad = Float8Product{.left = kGradientTensor, .right = kTensor},
    .power_of_two_scales = false,
};

constexpr Float8Scheme kRowwise{
    .name = "float8_rowwise",
    .forward = Float8Product{.left = kRow, .right = kRow},
    .dgrad = Float8Product{.left = kRow, .right = kRow},
    .wgrad = Float8Product{.left = kRow, .right = kRow},
    .power_of_two_scales = true,
};

constexpr Float8Scheme kRowwiseWithGwHp{
    .name = "float8_rowwise_with_gw_hp",
    .forward = Float8Product{.left = kRow, .right = kRow},
    .dgrad = Float8Product{.left = kRow, .right = kTensor},
    .wgrad = std::nullopt,
    .power_of_two_scales = true,
};

constexpr Float8Operand kInt8Row{ElementFormat::int8, Float8Scaling::row};

constexpr Float8Scheme kInt8Scheme{
    .name = "int8_rowwise",
    .forward = Float8Product{.left = kInt8Row, .right = kInt8Row},
    .dgrad = Float8Product{.left = kInt8Row, .right = kInt8Row},
    .wgrad = Float8Product{.left = kInt8Row, .right = kInt8Row},
    .power_of_two_scales = false,
};

constexpr std::array kAllGemms{LinearGemm::forward, LinearGemm::dgrad, LinearGemm::wgrad};
constexpr std::array kGemmsOfX{LinearGemm::forward, LinearGemm::dgrad};
constexpr std::array<std::string_view, 6> kKeys{
    "emulate", "pad", "keep_weights", "fast_accumulation", "high_precision_gemms", "gradient_rounding"};
constexpr std::array<std::string_view, 9> kTensorwiseKeys{
    "emulate",           "pad",     "keep_weights", "fast_accumulation", "high_precision_gemms",
    "gradient_rounding", "scaling", "amax_history", "amax_margin"};
constexpr std::array<std::string_view, 5> kInt8Keys{"emulate", "pad", "keep_weights", "high_precision_gemms",
                                                    "gradient_rounding"};

bool named(const std::vector<LinearGemm>& list, LinearGemm which) {
  return std::ranges::find(list, which) != list.end();
}

Float8Scheme chosen(Float8Scheme scheme, const RecipeOptions& options) {
  const auto choose = [&](LinearGemm which, std::optional<Float8Product>& product) {
    if (named(options.high_precision, which)) product.reset();
    if (product) product->fast_accumulation = named(options.fast_accumulation, which);
  };
  choose(LinearGemm::forward, scheme.forward);
  choose(LinearGemm::dgrad, scheme.dgrad);
  choose(LinearGemm::wgrad, scheme.wgrad);
  return scheme;
}

std::vector<LinearGemm> float8_gemms(const Float8Scheme& scheme) {
  std::vector<LinearGemm> result;
  if (scheme.forward) result.push_back(LinearGemm::forward);
  if (scheme.dgrad) result.push_back(LinearGemm::dgrad);
  if (scheme.wgrad) result.push_back(LinearGemm::wgrad);
  return result;
}

// Distinct from the streams of parameters.
std::optional<RandomKey> gradient_draws(const nn::LinearInfo& layer, const RecipeOptions& options) {
  if (!options.stochastic_gradients) return std::nullopt;
  return RandomKey{.seed = *options.stochastic_gradients, .stream = hash64(layer.name + ".output_gradient")};
}

// None for the head: its hidden states and weight scale by their amax, its gradients by their bound (Float8Head).
LayerScaling layer_scaling(const nn::LinearInfo& layer, const RecipeOptions& options) {
  if (layer.name == nn::kHeadName) return {};
  return {options.delayed_scaling, layer.name, kTensor.element, kGradientTensor.element};
}

template <const Float8Scheme& kScheme>
LinearPlan plan(const nn::LinearInfo& layer, const RecipeOptions& options) {
  constexpr std::int64_t kMultiple = 16;
  // Logits are used in place, without padding.
  const bool head = layer.name == nn::kHeadName;
  if ((!options.pad || head) && (layer.in_features % kMultiple != 0 || layer.out_features % kMultiple != 0))
    return {nullptr,
            fmt::format("{} x {} are not multiples of {}; {}", layer.out_features, layer.in_features, kMultiple,
                        head ? "the head is not padded" : "recipe.pad pads them"),
            {},
            head ? "" : "recipe.pad"};
  const Float8Scheme scheme = chosen(kScheme, options);
  if (!scheme.forward && !scheme.dgrad && !scheme.wgrad) return {nullptr, kNoProductLeft, {}, kHighPrecisionKey};
  return {std::make_shared<Float8Linear>(scheme, Float8LinearOptions{.emulate = options.emulate,
                                                                     .keep_weight = options.keep_weights,
                                                                     .health = {options.health, layer.name},
                                                                     .gradient_draws = gradient_draws(layer, options),
                                                                     .scaling = layer_scaling(layer, options)}),
          {},
          float8_gemms(scheme)};
}

// Emulation for sizes without a kernel, or if emulate is set.
template <const Float8Scheme& kScheme>
ExpertPlan plan_experts(const nn::LinearInfo& layer, const RecipeOptions& options) {
  const EmulatedGemms left = EmulatedGemms::without(options.high_precision);
  const EmulatedGemms gemms{left.forward && kScheme.forward, left.dgrad && kScheme.dgrad, left.wgrad && kScheme.wgrad};
  if (!gemms.any()) return {nullptr, kNoProductLeft, kHighPrecisionKey};
  const LayerHealth health(options.health, layer.name);
  constexpr std::int64_t kMultiple = 16;
  const bool fits = layer.in_features % kMultiple == 0 && layer.out_features % kMultiple == 0;
  if (options.emulate || !fits) return {emulated_experts(float8_row_rounding(), gemms, health), {}};
  return {float8_experts({.float8 = gemms,
                          .fast_accumulation = named(options.fast_accumulation, LinearGemm::forward),
                          .keep_weights = options.keep_weights,
                          .health = health}),
          {}};
}

constexpr std::array<std::string_view, 2> kBlockKeys{"emulate", "high_precision_gemms"};

// nullopt if no float8 GEMM remains.
std::optional<BlockFloat8Options> block_options(const nn::LinearInfo& layer, const RecipeOptions& options) {
  const EmulatedGemms gemms = EmulatedGemms::without(options.high_precision);
  if (!gemms.any()) return std::nullopt;
  // The epilogue stores eight results of a row at a time.
  constexpr std::int64_t kMultiple = 8;
  const bool fits = layer.in_features % kMultiple == 0 && layer.out_features % kMultiple == 0;
  if (!options.emulate && fits) return BlockFloat8Options{.float8 = gemms};
  const bool on_cpu = options.target.value_or(layer.device).is_cpu();
  return BlockFloat8Options{.float8 = gemms, .gemms = on_cpu ? BlockGemms::emulated_by_group : BlockGemms::emulated};
}

LinearPlan plan_blockwise(const nn::LinearInfo& layer, const RecipeOptions& options) {
  if (layer.name == nn::kHeadName) return {nullptr, "the head's loss has no blockwise GEMMs", {}};
  if (layer.has_bias) return {nullptr, "blockwise GEMMs add no bias", {}};
  const auto chosen = block_options(layer, options);
  if (!chosen) return {nullptr, kNoProductLeft, {}, kHighPrecisionKey};
  LinearPlan plan{block_float8_linear(*chosen), {}};
  if (chosen->float8.forward) plan.float8.push_back(LinearGemm::forward);
  if (chosen->float8.dgrad) plan.float8.push_back(LinearGemm::dgrad);
  if (chosen->float8.wgrad) plan.float8.push_back(LinearGemm::wgrad);
  return plan;
}

ExpertPlan plan_blockwise_experts(const nn::LinearInfo& layer, const RecipeOptions& options) {
  const auto chosen = block_options(layer, options);
  if (!chosen) return {nullptr, kNoProductLeft, kHighPrecisionKey};
  return {block_float8_experts(*chosen), {}};
}

}  // namespace

// 3 mantissa bits (2 in e5m2 gradients): relative rounding error at most 2^-4 (2^-3), about 2.6% (5.2%) RMS; an output
// sums two independent operand errors.
const Recipe kFloat8Tensorwise{
    "float8_tensorwise",
    "e4m3 with one scale a tensor, e5m2 gradients; the fastest float8 recipe",
    plan<kTensorwise>,
    {.output_relative_l2 = 0.05, .gradient_relative_l2 = 0.08, .loss_relative = 0.03},
    {.float8 = kAllGemms, .float8_kind = Float8GemmKind::tensorwise, .keys = kTensorwiseKeys}};
const Recipe kFloat8Rowwise{"float8_rowwise",
                            "e4m3 with a power-of-two scale a row or column of each operand",
                            plan<kRowwise>,
                            {.output_relative_l2 = 0.05, .gradient_relative_l2 = 0.06, .loss_relative = 0.03},
                            {.float8 = kAllGemms, .keys = kKeys},
                            plan_experts<kRowwise>};
const Recipe kFloat8RowwiseWithGwHp{"float8_rowwise_with_gw_hp",
                                    "float8_rowwise with weight gradients in high precision",
                                    plan<kRowwiseWithGwHp>,
                                    {.output_relative_l2 = 0.05, .gradient_relative_l2 = 0.06, .loss_relative = 0.03},
                                    {.float8 = kGemmsOfX, .keys = kKeys}};
const Recipe kFloat8Blockwise{"float8_blockwise",
                              "e4m3 with a scale for 128 activations and for 128 x 128 weights (DeepSeek-V3)",
                              plan_blockwise,
                              {.output_relative_l2 = 0.05, .gradient_relative_l2 = 0.06, .loss_relative = 0.03},
                              {.float8 = kAllGemms, .float8_kind = Float8GemmKind::blockwise, .keys = kBlockKeys},
                              plan_blockwise_experts};
// Steps of amax / 127: at an amax of eight standard deviations an operand's error is 1.8% RMS.
const Recipe kInt8Rowwise{"int8_rowwise",
                          "int8 with a scale a row or column of each operand; for GPUs without float8 tensor cores",
                          plan<kInt8Scheme>,
                          {.output_relative_l2 = 0.04, .gradient_relative_l2 = 0.06, .loss_relative = 0.03},
                          {.float8 = kAllGemms, .float8_kind = Float8GemmKind::int8, .keys = kInt8Keys}};

}  // namespace quench::recipes
