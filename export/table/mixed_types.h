#pragma once
// Types of a model's layers under a mix (export/mixes/mix.h).

#include <string_view>
#include <vector>

#include "export/ptq/quantize_model.h"
#include "nn/spec/model_config.h"
#include "recipes/recipe.h"

namespace quench {

// Sets `mixed` of the rules, for layers that it lacks, and `embeddings` unless named, by their scheme's mix; without
// one nothing. `tensors` of model_tensors(). Throws bad_config naming the tensor if its type needs an importance matrix
// and none will be there.
void choose_mixed_types(QuantizationRules& rules, const std::vector<ModelTensor>& tensors,
                        const nn::ModelConfig& config);

// A GGUF type or mix. Throws bad_config naming `key`.
[[nodiscard]] const Scheme& require_gguf_scheme(std::string_view name, std::string_view key);

// Sets options.gguf_types of a recipe with key gguf_scheme: types that a file of this model has under that scheme and
// options.rules, fallbacks included, without an importance matrix. For other recipes nothing. Throws bad_config naming
// recipe.gguf_scheme for another scheme, unsupported for a model without GGUF form.
void choose_gguf_types(recipes::RecipeOptions& options, const recipes::Recipe& recipe, nn::CausalLm& model);

}  // namespace quench
