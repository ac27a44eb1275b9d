#pragma once
// Command-line options of verbs that run a model under a recipe: its linear layers compute as they do in training.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/command.h"
#include "apps/common.h"
#include "recipes/convert.h"

namespace quench {

struct RecipeArguments {
  std::string name{recipes::kBf16.name};
  std::vector<std::string> exclude = {"lm_head"};
  bool emulate = false;
  // Of the weights in quantization-aware training; absent: the recipe's own.
  std::optional<std::int64_t> weight_bits;
  std::optional<std::int64_t> group_size;
  bool asymmetric_weights = false;
  std::optional<std::int64_t> embedding_bits;
  std::optional<std::int64_t> embedding_group_size;

  void add_to(const Command& verb);
  // Whether a recipe other than bf16 is asked for.
  [[nodiscard]] bool given() const { return name != recipes::kBf16.name; }
  // Throws bad_config for an unknown recipe, "auto", and an option that the recipe does not use.
  void check() const;
  // Converts the model's layers, its adapters lying over them. Throws bad_config for a model that is quantized already.
  std::vector<recipes::LayerConversion> apply(LoadedModel& loaded) const;
};

}  // namespace quench
