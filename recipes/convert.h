#pragma once
// The conversion walk: gives every linear layer of a model, those of experts included, the kernel its recipe plans, and
// reports layer by layer.

#include <optional>
#include <string>
#include <vector>

#include "nn/module.h"
#include "recipes/recipe.h"

namespace quench::recipes {

// Globs over module paths ("*" matches any run of characters, dots included). A fused layer also answers to the names
// of its parts: "*.q_proj" matches self_attn.qkv_proj.
struct LayerFilter {
  std::vector<std::string> include;  // empty: every linear layer
  std::vector<std::string> exclude;
  // Decoder layers ("model.layers.N.*") at either end that are left out.
  std::int64_t skip_first_layers = 0;
  std::int64_t skip_last_layers = 0;
};

// What a layer keeps of its input from its forward to its backward pass.
struct SavedInput {
  enum class Form {
    input,              // x itself
    saved_by_producer,  // x, which the function that made it keeps anyway: no bytes of its own
    recomputed,         // x is made again from what its producer keeps; only its scales
    codes,              // x as float8, and scales
    layer_recomputed,   // nothing: all of the layer does
  };
  std::int64_t bytes = 0;  // of a micro-batch
  Form form = Form::input;
};

struct LayerConversion {
  std::string name;
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  std::string kernel;              // what the layer runs now
  std::string skipped_because;     // empty when the recipe applies
  std::vector<LinearGemm> float8;  // products of float8 operands
  std::int64_t experts = 0;        // that the layer is one layer of each of; 0: an ordinary layer
  // Where somebody has measured it (train/plan/saved_inputs.h), and what the layer would keep in high precision.
  std::optional<SavedInput> kept = std::nullopt;
  SavedInput kept_in_high_precision = {};
  bool unfit = false;               // skipped because the recipe cannot take it, although the filter leaves it in
  std::string_view unfit_key = {};  // and the config key that could change that, where it is one
};

// Throws bad_config naming a pattern that matches no layer, and when nothing is left between the skipped layers.
std::vector<LayerConversion> apply_recipe(nn::Module& root, const Recipe& recipe, const LayerFilter& filter,
                                          const RecipeOptions& options = {});

// Throws bad_config, naming every layer that the recipe cannot take and why, where the layers that it requires
// (RecipeCapabilities::required) are not among those that it takes.
void require_layers(const Recipe& recipe, const std::vector<LayerConversion>& layers);

// One line per distinct (shape, outcome), with the number of layers and the reason where one was skipped, and which
// ones where others of the same name were not; where it was measured, what a layer keeps for the backward pass, and
// what all of them save.
[[nodiscard]] std::string conversion_report(const std::vector<LayerConversion>& layers);

// Numbers replaced by "*", so that the layers of a stack have one name: "model.layers.*.mlp.down_proj".
[[nodiscard]] std::string without_index(const std::string& name);

[[nodiscard]] bool glob_matches(std::string_view pattern, std::string_view text) noexcept;

}  // namespace quench::recipes
