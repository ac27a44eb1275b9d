#pragma once
// Precision recipe: declares how the three GEMMs of every linear layer run. One file and one line in table.cpp per
// recipe; shared tests run over the table.

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/gguf_types/block_format.h"
#include "core/number/affine_int.h"
#include "core/number/e8m0.h"
#include "nn/experts/expert_kernel.h"
#include "nn/modules/embedding.h"
#include "nn/modules/linear_kernel.h"
#include "recipes/delayed_scaling.h"
#include "recipes/health.h"
#include "recipes/linear_gemm.h"

namespace quench::recipes {

// Tolerances of the shared tests relative to f32.
struct RecipeTolerances {
  double output_relative_l2 = 0;    // y of one layer
  double gradient_relative_l2 = 0;  // dx and dw of one layer
  double loss_relative = 0;         // final loss of a short training run
};

// Convertible layers required among those that the filter selects.
enum class RequiredLayers {
  none,
  some,  // at least one: otherwise the run would differ silently from the requested one
  all,   // all: an unconverted layer would not be trained for its export format
};

struct RecipeOptions;

// Scales of float8 GEMMs, which decide where tensor cores run them (recipes/float8/hardware.h); int8 instead of float8.
enum class Float8GemmKind : std::uint8_t { tensorwise, rowwise, blockwise, int8 };

// Hardware, keys and export scheme of a recipe.
struct RecipeCapabilities {
  // GEMMs of 8-bit codes, before RecipeOptions::high_precision.
  std::span<const LinearGemm> float8 = {};
  Float8GemmKind float8_kind = Float8GemmKind::rowwise;
  bool mxfp8 = false;  // GEMMs of MXFP8 operands
  // Keys of config section recipe, in addition to the common ones (name, filter.*, high_precision_tail, start_step,
  // stop_step).
  std::span<const std::string_view> keys = {};
  RequiredLayers required = RequiredLayers::some;  // convert.h: require_layers()
  bool takes_head = false;                         // the head is left out only if it is excluded by name
  // "float8" or "int8", of `float8`.
  [[nodiscard]] constexpr std::string_view codes() const {
    return float8_kind == Float8GemmKind::int8 ? "int8" : "float8";
  }
  // Export scheme (export/schemes/scheme.h) that training simulates; null: none.
  std::string (*scheme)(const RecipeOptions& options) = nullptr;
  std::string (*embedding_scheme)(const RecipeOptions& options) = nullptr;

  // Whether the scale of x, and so each row of y, depends on all rows.
  [[nodiscard]] constexpr bool mixes_rows() const {
    return float8_kind == Float8GemmKind::tensorwise && std::ranges::find(float8, LinearGemm::forward) != float8.end();
  }
  [[nodiscard]] constexpr bool quantizes_gradients() const {
    for (const LinearGemm gemm : float8)
      if (gemm != LinearGemm::forward) return true;
    return false;
  }
};

// GGUF types of layers and of the embedding table, by module path ("model.layers.0.self_attn.q_proj", for experts
// "model.layers.0.mlp.experts.0.up_proj").
using GgufTypes = std::map<std::string, BlockType, std::less<>>;

// Format of the layers whose names match, in place of the recipe's own: a scheme of exports of the same kind.
struct LayerRule {
  std::string pattern;  // glob, as of LayerFilter
  std::string scheme;   // name; empty: high precision
  // Integers of the scheme; absent: GGUF types, which `gguf_types` has.
  std::optional<std::int64_t> bits = {}, group_size = {};
  IntMapping mapping = IntMapping::symmetric;
};
// The first rule that matches; null: none.
[[nodiscard]] const LayerRule* find_rule(std::span<const LayerRule> rules, std::string_view layer) noexcept;
// Throws bad_config naming recipe.rules and the first rule that matches none of the layers.
void require_matches(std::span<const LayerRule> rules, std::span<const std::string> layers);

// Options of config section recipe.
struct RecipeOptions {
  // Target of a model on the meta device; absent: the layers' device.
  std::optional<Device> target;
  // Compute in f32: equal up to summation order, on any device, slow.
  bool emulate = false;
  // Pad unsupported sizes instead of skipping the layer.
  bool pad = false;
  bool keep_weights = false;
  // GEMMs that accumulate in the tensor core's own accumulator.
  std::vector<LinearGemm> fast_accumulation = {LinearGemm::forward};
  std::vector<LinearGemm> high_precision;
  // Seed of stochastic rounding of quantized output gradients; absent: to nearest.
  std::optional<std::uint64_t> stochastic_gradients;
  // Integer weights in QAT: bits, group size (0: a whole row), zero points. Absent: the recipe's defaults.
  std::optional<std::int64_t> weight_bits;
  std::optional<std::int64_t> group_size;
  bool asymmetric_weights = false;
  bool learned_scales = false;
  // Grid of integer weights: symmetric, or of few levels, whose bits follow from it (affine_int.h).
  IntMapping weight_grid = IntMapping::symmetric;
  std::vector<LayerRule> rules;
  // Scales of integer weights, learned or not, are rounded to it; absent: the weights' dtype.
  std::optional<DType> scale_dtype;
  // Embedding table: integer bits (absent: high precision), and group size (0: a row; absent: the recipe's default).
  std::optional<std::int64_t> embedding_bits;
  std::optional<std::int64_t> embedding_group_size;
  // QAT for a GGUF file: its scheme, and the types that this gives the model; null: Q4_0 for all layers.
  std::string gguf_scheme = "q4_k_m";
  std::shared_ptr<const GgufTypes> gguf_types = nullptr;
  MxScaleMode mx_scale = MxScaleMode::rceil;
  std::shared_ptr<HealthRecorder> health;
  // Delayed scaling of x and output gradients of linear layers but the head; null: dynamic scaling.
  std::shared_ptr<DelayedScaling> delayed_scaling;
};

// A kernel, or the reason why there is none; `key`: the responsible config key, if any.
struct LinearPlan {
  std::shared_ptr<const nn::LinearKernel> kernel;
  std::string skipped_because;
  std::vector<LinearGemm> float8 = {};
  std::string_view key = {};
};

// The same for the experts of a layer.
struct ExpertPlan {
  std::shared_ptr<const nn::ExpertKernel> kernel;
  std::string skipped_because;
  std::string_view key = {};
};

// The same for an embedding table.
struct EmbeddingPlan {
  std::shared_ptr<const nn::EmbeddingKernel> kernel;
  std::string skipped_because;
  std::string_view key = {};
};

// Reason if RecipeOptions::high_precision covers all GEMMs.
inline constexpr std::string_view kHighPrecisionKey = "recipe.high_precision_gemms";
// The reason's text.
inline constexpr const char* kNoProductLeft = "all of its GEMMs are in recipe.high_precision_gemms";

// Whether the options give the embedding table a format.
[[nodiscard]] inline bool plans_embedding(const RecipeOptions& options, const std::string& table) {
  return options.embedding_bits || (options.gguf_types != nullptr && options.gguf_types->contains(table));
}

// Entry of the table of recipes.
struct Recipe {
  // Whether it has the key of section recipe, in addition to the common ones.
  [[nodiscard]] bool has_key(std::string_view key) const {
    return std::ranges::find(capabilities.keys, key) != capabilities.keys.end();
  }

  std::string_view name;
  std::string_view summary;  // one line for `quench config ls`
  LinearPlan (*plan)(const nn::LinearInfo& layer, const RecipeOptions& options);
  RecipeTolerances tolerances;
  RecipeCapabilities capabilities = {};
  // With the sizes of one expert; null: not supported.
  ExpertPlan (*plan_experts)(const nn::LinearInfo& layer, const RecipeOptions& options) = nullptr;
  // If plans_embedding(); null: not supported.
  EmbeddingPlan (*plan_embedding)(const nn::LinearInfo& table, const RecipeOptions& options) = nullptr;
};

// Patterns of layers that a recipe leaves out unless others are given.
[[nodiscard]] std::vector<std::string> default_exclusions(const Recipe& recipe);

// Default first.
[[nodiscard]] std::span<const Recipe> recipe_table();
// Throws bad_config for an unknown name.
[[nodiscard]] const Recipe& find_recipe(std::string_view name);

// Built-in recipes (docs/reference/recipes.md).
extern const Recipe kBf16;
extern const Recipe kFloat8Tensorwise;
extern const Recipe kFloat8Rowwise;
extern const Recipe kFloat8RowwiseWithGwHp;
extern const Recipe kFloat8Blockwise;
extern const Recipe kInt8Rowwise;
extern const Recipe kQatInt8DynInt4;
extern const Recipe kQatInt4WeightOnly;
extern const Recipe kQatInt8;
extern const Recipe kQatFloat8;
extern const Recipe kQatFloat8Int4;
extern const Recipe kQatMxfp4;
extern const Recipe kQatMxfp4WeightOnly;
extern const Recipe kQatNvfp4;
extern const Recipe kQatNvfp4WeightOnly;
extern const Recipe kQatInt8DynIntx;
extern const Recipe kQatIntxWeightOnly;
extern const Recipe kQatGguf;
extern const Recipe kMxfp8;

}  // namespace quench::recipes
