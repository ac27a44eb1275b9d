#pragma once
// Assigns a kernel to every linear and expert layer of a model, and reports per layer.

#include <optional>
#include <string>
#include <vector>

#include "nn/modules/module.h"
#include "recipes/recipe.h"

namespace quench::recipes {

// Globs over module paths ("*" matches dots too). A fused layer also matches by its parts: "*.q_proj" matches
// self_attn.qkv_proj.
struct LayerFilter {
  std::vector<std::string> include;  // empty: all linear layers
  std::vector<std::string> exclude;
  // Decoder layers ("model.layers.N.*") skipped at either end.
  std::int64_t skip_first_layers = 0;
  std::int64_t skip_last_layers = 0;
};

// Form in which a layer saves its input for the backward pass.
struct SavedInput {
  enum class Form {
    input,
    saved_by_producer,  // no extra bytes
    recomputed,         // recomputed by its producer; only scales are saved
    codes,              // float8 values and scales
    layer_recomputed,   // nothing: full recompute of the layer
  };
  std::int64_t bytes = 0;  // per micro-batch
  Form form = Form::input;
};

// Outcome for one layer.
struct LayerConversion {
  std::string name;
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  std::string kernel;
  std::string skipped_because;  // empty when the recipe applies
  std::vector<LinearGemm> float8;
  std::int64_t experts = 0;  // 0: a dense layer
  // Measured by train/plan/saved_inputs.h.
  std::optional<SavedInput> kept = std::nullopt;
  SavedInput kept_in_high_precision = {};
  bool unfit = false;               // the recipe does not support the layer, although the filter includes it
  std::string_view unfit_key = {};  // config key that would change that, if any
};

// Throws bad_config for a pattern without match, and when the skipped layers cover the model.
std::vector<LayerConversion> apply_recipe(nn::Module& root, const Recipe& recipe, const LayerFilter& filter,
                                          const RecipeOptions& options = {});

// Throws bad_config where RecipeCapabilities::required is not met.
void require_layers(const Recipe& recipe, const std::vector<LayerConversion>& layers);

// One line per distinct (shape, outcome), with saved bytes if measured.
[[nodiscard]] std::string conversion_report(const std::vector<LayerConversion>& layers);

// Numbers replaced by "*": "model.layers.*.mlp.down_proj".
[[nodiscard]] std::string without_index(const std::string& name);

// "*" matches any characters, "?" one.
[[nodiscard]] bool glob_matches(std::string_view pattern, std::string_view text) noexcept;

}  // namespace quench::recipes
