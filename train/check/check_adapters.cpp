// Checks of the section lora against the rest of the run.

#include "export/stored_weights.h"
#include "train/check/checker.h"
#include "train/config/recipe_choice.h"

namespace quench {

namespace {

void check_stored_base(Checker& checker) {
  const RunConfig& config = checker.config();
  if (config.lora->base != recipes::BaseForm::stored || !checker.usable({"lora.base", "model.path", "model.init"}))
    return;
  if (config.model.init == ModelSection::Init::random || config.model.path.empty()) {
    checker.report("lora.base", "stored, but no weights are loaded; name a quantized folder in model.path");
    return;
  }
  if (!checker.options().files || checker.issue_count() > 0) return;
  const std::optional<Json> model = stored_model_config(config.model.path);
  if (model && !is_quantized(config.model.path, *model))
    checker.report("lora.base", "stored, but the weights in {} are not quantized; set it to dense, nf4 or float8",
                   config.model.path);
}

}  // namespace

void check_adapters(Checker& checker) {
  const RunConfig& config = checker.config();
  if (!config.lora) return;
  if (config.lora->targets.empty() && checker.usable({"lora.targets"}))
    checker.report("lora.targets", "is empty: no layer gets an adapter");
  check_stored_base(checker);
  if (config.parallel.ranks > 1 && config.lora->base != recipes::BaseForm::dense && checker.usable({"lora.base"}))
    checker.report("lora.base", "is kept dense where several processes share it out: set it to dense");
  if (checker.usable({"recipe.name"}) && config.recipe.name == kAutoRecipe)
    checker.report("recipe.name", "{} is chosen for runs that train all of the model; name a recipe beside lora",
                   kAutoRecipe);
}

}  // namespace quench
