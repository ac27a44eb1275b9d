// Tensor parallelism: what runs with slices of the weights.

#include "nn/optim/table.h"
#include "nn/spec/tensor_parallel.h"
#include "recipes/recipe.h"
#include "train/check/checks.h"
#include "train/config/objective_table.h"
#include "train/config/recipe_choice.h"

namespace quench {

void check_tensor(Checker& checker) {
  const RunConfig& config = checker.config();
  const std::int64_t ranks = config.parallel.tensor;
  if (ranks == 1 || !checker.usable({"parallel.tensor"})) return;
  const auto refuse = [&](const std::string& what) {
    checker.report("parallel.tensor", "{} slices of the weights, but {}; set it to 1", ranks, what);
  };
  if (const ObjectiveEntry& objective = objective_of(config); !objective.takes_slices)
    refuse(fmt::format("the objective {} needs whole ones", objective.name));
  if (config.lora &&
      (config.lora->base != recipes::BaseForm::dense || config.lora->dora || !config.lora->modules_to_save.empty() ||
       !config.lora->trainable_token_indices.embedding.ids.empty() ||
       !config.lora->trainable_token_indices.head.ids.empty()))
    refuse("of adapters lora.base, lora.dora, lora.modules_to_save and lora.trainable_token_indices need whole ones");
  if (checker.usable({"optimizer.name"}))
    if (const nn::OptimizerEntry* optimizer = nn::optimizer_table().find(config.optimizer.name);
        optimizer != nullptr && !optimizer->is_elementwise)
      refuse(fmt::format("optimizer.name {} reads whole rows or matrices", optimizer->name));
  if (checker.usable({"recipe.name"}) && config.recipe.name != kAutoRecipe) {
    const recipes::RecipeCapabilities& capabilities = recipes::find_recipe(config.recipe.name).capabilities;
    const bool plain = config.recipe.name == recipes::kBf16.name || capabilities.mxfp8 || !capabilities.float8.empty();
    if (!plain || capabilities.scheme != nullptr)
      refuse(fmt::format("recipe.name {} quantizes or prunes whole rows of the weights", config.recipe.name));
  } else if (config.recipe.name == kAutoRecipe) {
    refuse("recipe.name auto measures whole layers");
  }
  if (!config.model.add_tokens.empty() && checker.usable({"model.add_tokens"}))
    refuse("model.add_tokens adds rows to whole tables");
  if (config.export_model &&
      (config.lora || !config.export_model->quantization.scheme.empty() || !config.export_model->sparsity.empty()))
    checker.report(
        "parallel.tensor",
        "{} slices of the weights, but section export quantizes, prunes or merges whole ones; leave it out and "
        "write the model from the checkpoint with quench export",
        ranks);
}

void check_tensor_model(Checker& checker, const nn::ModelConfig& model) {
  const std::int64_t ranks = checker.config().parallel.tensor;
  if (ranks == 1 || !checker.usable({"parallel.tensor"})) return;
  if (const std::string fault = nn::tensor_parallel_fault(model, ranks); !fault.empty())
    checker.report("parallel.tensor", "{} slices of {} are not possible: {}", ranks, model.architecture, fault);
}

}  // namespace quench
