#include "apps/options/recipe_options.h"

#include <algorithm>
#include <array>

#include "core/ops/quantize/weight_grids.h"
#include "export/table/mixed_types.h"
#include "train/config/recipe_choice.h"

namespace quench {

namespace {

DType scale_dtype_of(const std::string& name) {
  const std::optional<DType> dtype = dtype_from_string(name);
  QUENCH_CHECK_AS(ErrorCode::bad_config, dtype == DType::bf16 || dtype == DType::f16,
                  "--scale-dtype '{}' is unknown; known: bf16, f16", name);
  return *dtype;
}

}  // namespace

void RecipeArguments::add_to(const Command& verb) {
  verb.add_option("--recipe", name, "Precision recipe of the linear layers").show_default();
  exclude_option = verb.add_option("--recipe-exclude", exclude,
                                   "Patterns of layers that stay in high precision; default: lm_head, of qat_gguf none")
                       .delimiter(',');
  verb.add_option("--weight-bits", weight_bits, "recipe.weight_bits: bits of the weights under a qat_intx recipe")
      .between(2, 8);
  verb.add_option("--group-size", group_size, "recipe.group_size: group size of weights under a qat recipe; 0: a row")
      .non_negative();
  verb.add_flag("--asymmetric-weights", asymmetric_weights,
                "recipe.asymmetric_weights: integer weights with zero points under a qat recipe");
  verb.add_option("--weight-grid", weight_grid,
                  "recipe.weight_grid: int, binary, ternary or seq weights under a qat_intx recipe");
  verb.add_option("--scale-dtype", scale_dtype,
                  "recipe.scale_dtype: bf16 or f16, which scales of integer weights are rounded to");
  verb.add_option("--embedding-bits", embedding_bits,
                  "recipe.embedding_bits: bits of the embedding table under a qat recipe")
      .between(2, 8);
  verb.add_option("--embedding-group-size", embedding_group_size,
                  "recipe.embedding_group_size: group size of the embedding table; 0: a row")
      .non_negative();
  verb.add_option("--gguf-scheme", gguf_scheme, "recipe.gguf_scheme: GGUF type or mix of recipe qat_gguf, e.g. q4_k_m");
  verb.add_flag("--emulate", emulate, "Emulate the recipe: f32 GEMMs of the dequantized operands");
}

void RecipeArguments::check() const {
  QUENCH_CHECK_AS(ErrorCode::bad_config, name != kAutoRecipe,
                  "--recipe {} is chosen for a run's batches by `quench train` and `quench probe`; name a recipe",
                  kAutoRecipe);
  const recipes::Recipe& recipe = recipes::find_recipe(name);
  struct Option {
    std::string_view key, flag;
    bool given;
  };
  QUENCH_CHECK_AS(ErrorCode::bad_config,
                  weight_grid.empty() || weight_grid == "int" || (!weight_bits && !asymmetric_weights),
                  "{} has no effect under --weight-grid {}, which has its own levels",
                  weight_bits ? "--weight-bits" : "--asymmetric-weights", weight_grid);
  for (const Option& option :
       std::array<Option, 8>{{{"weight_bits", "--weight-bits", weight_bits.has_value()},
                              {"group_size", "--group-size", group_size.has_value()},
                              {"asymmetric_weights", "--asymmetric-weights", asymmetric_weights},
                              {"weight_grid", "--weight-grid", !weight_grid.empty()},
                              {"scale_dtype", "--scale-dtype", !scale_dtype.empty()},
                              {"embedding_bits", "--embedding-bits", embedding_bits.has_value()},
                              {"embedding_group_size", "--embedding-group-size", embedding_group_size.has_value()},
                              {"gguf_scheme", "--gguf-scheme", !gguf_scheme.empty()}}})
    QUENCH_CHECK_AS(ErrorCode::bad_config, !option.given || recipe.has_key(option.key),
                    "{} has no effect on --recipe {}", option.flag, name);
}

std::vector<recipes::LayerConversion> RecipeArguments::apply(const Model& opened) const {
  check();
  const recipes::Recipe& recipe = recipes::find_recipe(name);
  QUENCH_CHECK_AS(ErrorCode::bad_config, !opened.is_quantized() || !given(),
                  "--recipe {}: the model is quantized already; use the unquantized model", name);
  nn::CausalLm& model = opened.model();
  recipes::RecipeOptions options{.emulate = emulate || model.options().device.is_cpu(),
                                 .keep_weights = true,
                                 .weight_bits = weight_bits,
                                 .group_size = group_size,
                                 .asymmetric_weights = asymmetric_weights,
                                 .embedding_bits = embedding_bits,
                                 .embedding_group_size = embedding_group_size};
  if (!weight_grid.empty()) options.weight_grid = require_weight_grid(weight_grid, "--weight-grid").mapping;
  if (!scale_dtype.empty()) options.scale_dtype = scale_dtype_of(scale_dtype);
  if (!gguf_scheme.empty()) options.gguf_scheme = gguf_scheme;
  choose_gguf_types(options, recipe, model);
  const bool named = exclude_option && exclude_option->given();
  const std::vector<std::string> excluded = named ? exclude : recipes::default_exclusions(recipe);
  auto conversion = recipes::apply_recipe(model, recipe, {.exclude = excluded}, options);
  recipes::require_layers(recipe, conversion);
  if (recipes::Adapters* adapters = opened.adapters(); adapters != nullptr) {
    adapters->attach();
    adapters->name_kernels(conversion);
  }
  return conversion;
}

}  // namespace quench
