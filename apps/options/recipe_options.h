#pragma once
// Options of verbs that run a model's linear layers under a recipe, as in training.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/command.h"
#include "recipes/convert.h"
#include "train/model/model.h"

namespace quench {

struct RecipeArguments {
  std::string name{recipes::kBf16.name};
  std::vector<std::string> exclude;  // patterns of --recipe-exclude; without it recipes::default_exclusions()
  std::optional<CommandOption> exclude_option;
  bool emulate = false;
  // QAT weight bits; absent: the recipe's default.
  std::optional<std::int64_t> weight_bits;
  std::optional<std::int64_t> group_size;
  bool asymmetric_weights = false;
  std::string weight_grid;  // empty: integers
  std::string scale_dtype;  // empty: the model's dtype
  std::optional<std::int64_t> embedding_bits;
  std::optional<std::int64_t> embedding_group_size;
  std::string gguf_scheme;  // empty: the recipe's default

  void add_to(const Command& verb);
  // True for a recipe other than bf16.
  [[nodiscard]] bool given() const { return name != recipes::kBf16.name; }
  // Throws bad_config for an unknown recipe, "auto", and an option not used by the recipe.
  void check() const;
  // Converts the model's layers, with adapters applied on top. Throws bad_config for a quantized model.
  std::vector<recipes::LayerConversion> apply(const Model& opened) const;
};

}  // namespace quench
