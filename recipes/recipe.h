#pragma once
// A precision recipe: a value that says, for every linear layer, how its three products are computed.
//
// A new recipe is one new file and one line in table.cpp; the shared tests (gradients, loss curve, resume) run over
// every entry of the table with the tolerances it declares. Nobody compares names: what a recipe does, it declares.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/number/e8m0.h"
#include "nn/embedding.h"
#include "nn/experts/expert_kernel.h"
#include "nn/linear_kernel.h"
#include "recipes/health.h"
#include "recipes/linear_gemm.h"

namespace quench::recipes {

// What the shared tests allow, against the same computation in f32.
struct RecipeTolerances {
  double output_relative_l2 = 0;    // of one layer's y
  double gradient_relative_l2 = 0;  // of one layer's dx and dw
  double loss_relative = 0;         // of the final loss of a short training run against f32
};

// The layers that a run under a recipe must have, of those that its filter gives to the recipe.
enum class RequiredLayers {
  none,
  some,  // a run in which it takes no layer would be another run than the one asked for
  all,   // what is trained is what will be stored: a layer that it cannot take would be trained for other bits
};

struct RecipeOptions;

// What a recipe does, for those who offer, check and compare recipes.
struct RecipeCapabilities {
  // Products of float8 operands, before RecipeOptions::high_precision. They need float8 tensor cores where they are not
  // emulated.
  std::span<const LinearGemm> float8 = {};
  // Keys of the config section recipe that act on it, beside those that act on every recipe (name, filter.*,
  // high_precision_tail, start_step, stop_step).
  std::span<const std::string_view> keys = {};
  RequiredLayers required = RequiredLayers::some;  // convert.h: require_layers()
  // The export scheme (export/schemes/scheme.h) that stores what training simulates, or the name that it would have;
  // null: the recipe simulates none.
  std::string (*scheme)(const RecipeOptions& options) = nullptr;
  // The same of the embedding table, where RecipeOptions::embedding_bits is given.
  std::string (*embedding_scheme)(const RecipeOptions& options) = nullptr;

  // Whether it rounds output gradients.
  [[nodiscard]] constexpr bool quantizes_gradients() const {
    for (const LinearGemm gemm : float8)
      if (gemm != LinearGemm::forward) return true;
    return false;
  }
};

// What a run may choose about a recipe (config section recipe).
struct RecipeOptions {
  // The device that the run is for, where the model stands on the meta device; absent: the layers' own.
  std::optional<Device> target;
  // Compute in f32 what the recipe would give to low-precision tensor cores: the same numbers up to the order of sums,
  // on any device, slowly.
  bool emulate = false;
  // Pad layers whose sizes the tensor cores do not take, instead of leaving them in high precision.
  bool pad = false;
  // Keep the quantized weights between the micro-batches of a step.
  bool keep_weights = false;
  // Products that add in the tensor core's own accumulator.
  std::vector<LinearGemm> fast_accumulation = {LinearGemm::forward};
  // Products that stay in high precision whatever the recipe says.
  std::vector<LinearGemm> high_precision;
  // Quantized output gradients are rounded stochastically, with draws of this seed; absent: to nearest. No effect on
  // recipes that quantize none.
  std::optional<std::uint64_t> stochastic_gradients;
  // Of integer weights in quantization-aware training: bits, elements that share a scale (0: a whole row), and whether
  // they have zero points. Absent: the recipe's own.
  std::optional<std::int64_t> weight_bits;
  std::optional<std::int64_t> group_size;
  bool asymmetric_weights = false;
  // The scales of integer weights are parameters of their own, which the run trains.
  bool learned_scales = false;
  // Of the embedding table: bits of its integers (absent: it stays in high precision), and elements of a row that share
  // a scale (0: all; absent: the recipe's own).
  std::optional<std::int64_t> embedding_bits;
  std::optional<std::int64_t> embedding_group_size;
  // How the scale of an MX block follows from its largest magnitude.
  MxScaleMode mx_scale = MxScaleMode::rceil;
  // Where kernels record what quantization loses; null: nowhere.
  std::shared_ptr<HealthRecorder> health;
};

// Either a kernel, or the reason why the layer stays in high precision; `key`: the config key that it is about, if it
// is about one.
struct LinearPlan {
  std::shared_ptr<const nn::LinearKernel> kernel;
  std::string skipped_because;
  std::vector<LinearGemm> float8 = {};  // the products that the kernel computes of float8 operands
  std::string_view key = {};
};

// The same for the linear layers of experts.
struct ExpertPlan {
  std::shared_ptr<const nn::ExpertKernel> kernel;
  std::string skipped_because;
  std::string_view key = {};
};

// The same for the embedding table.
struct EmbeddingPlan {
  std::shared_ptr<const nn::EmbeddingKernel> kernel;
  std::string skipped_because;
  std::string_view key = {};
};

// What the plans say where RecipeOptions::high_precision leaves no product to the recipe.
inline constexpr std::string_view kHighPrecisionKey = "recipe.high_precision_gemms";
inline constexpr const char* kNoProductLeft = "all of its products are in recipe.high_precision_gemms";

struct Recipe {
  std::string_view name;
  std::string_view summary;  // one line for `quench config ls`
  LinearPlan (*plan)(const nn::LinearInfo& layer, const RecipeOptions& options);
  RecipeTolerances tolerances;
  RecipeCapabilities capabilities = {};
  // For the layers of experts, in and out being those of one expert; null: the recipe has no grouped products.
  ExpertPlan (*plan_experts)(const nn::LinearInfo& layer, const RecipeOptions& options) = nullptr;
  // Asked where RecipeOptions::embedding_bits is given; null: the recipe leaves embeddings alone.
  EmbeddingPlan (*plan_embedding)(const nn::LinearInfo& table, const RecipeOptions& options) = nullptr;
};

// All recipes, the default first.
[[nodiscard]] std::span<const Recipe> recipe_table();
// Throws bad_config with the list of names for an unknown one.
[[nodiscard]] const Recipe& find_recipe(std::string_view name);

extern const Recipe kBf16;
extern const Recipe kFloat8Tensorwise;
extern const Recipe kFloat8Rowwise;
extern const Recipe kFloat8RowwiseWithGwHp;
extern const Recipe kFloat8Blockwise;
extern const Recipe kQatInt8DynInt4;
extern const Recipe kQatInt4WeightOnly;
extern const Recipe kQatInt8;
extern const Recipe kQatFloat8;
extern const Recipe kQatFloat8Int4;
extern const Recipe kQatMxfp4;
extern const Recipe kQatNvfp4;
extern const Recipe kQatInt8DynIntx;
extern const Recipe kQatIntxWeightOnly;
extern const Recipe kMxfp8;

}  // namespace quench::recipes
