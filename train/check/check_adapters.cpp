// Checks of the section lora against the rest of the run.

#include "train/check/checker.h"
#include "train/config/recipe_choice.h"

namespace quench {

void check_adapters(Checker& checker) {
  const RunConfig& config = checker.config();
  if (!config.lora) return;
  if (config.lora->targets.empty() && checker.usable({"lora.targets"}))
    checker.report("lora.targets", "is empty: no layer gets an adapter");
  if (config.parallel.ranks > 1 && config.lora->base != recipes::BaseForm::dense && checker.usable({"lora.base"}))
    checker.report("lora.base", "is kept dense where several processes share it out: set it to dense");
  if (checker.usable({"recipe.name"}) && config.recipe.name == kAutoRecipe)
    checker.report("recipe.name", "{} is chosen for runs that train all of the model; name a recipe beside lora",
                   kAutoRecipe);
}

}  // namespace quench
