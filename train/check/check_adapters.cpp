#include "train/check/checks.h"
#include "train/config/recipe_choice.h"
#include "train/model_source/model_source.h"

namespace quench {
namespace {

// Weights at model.path are quantized; false if unknown.
bool loads_quantized(const RunConfig& config) {
  if (config.model.path.empty() || config.model.init == ModelSection::Init::random) return false;
  try {
    const ModelSource source = ModelSource::open(config.model.path);
    return source.is_quantized(source.config());
  } catch (const Error&) {
    return false;  // see check_model()
  }
}

void check_weights(Checker& checker) {
  const RunConfig& config = checker.config();
  if (!checker.usable({"model.path", "model.init"})) return;
  const bool stored = config.lora && config.lora->base == recipes::BaseForm::stored && checker.usable({"lora.base"});
  if (stored && (config.model.path.empty() || config.model.init == ModelSection::Init::random)) {
    checker.report("lora.base", "stored, but no weights are loaded; name a quantized folder in model.path");
    return;
  }
  if (!checker.options().files || checker.issue_count() > 0) return;
  const bool quantized = loads_quantized(config);
  if (stored && !quantized)
    checker.report("lora.base", "stored, but the weights in {} are not quantized; set it to dense, nf4 or float8",
                   config.model.path);
  if (!config.lora && quantized)
    checker.report(
        "model.path",
        "{} holds quantized weights, which only adapters can train: add a section lora, or use the unquantized model",
        config.model.path);
}

}  // namespace

void check_adapters(Checker& checker) {
  const RunConfig& config = checker.config();
  check_weights(checker);
  if (!config.lora) return;
  if (config.lora->targets.empty() && checker.usable({"lora.targets"}))
    checker.report("lora.targets", "is empty: no layer gets an adapter");
  const TrainedTokens& tokens = config.lora->trainable_token_indices;
  if ((tokens.embedding.added || tokens.head.added) && config.model.add_tokens.empty() &&
      checker.usable({"lora.trainable_token_indices", "model.add_tokens"}))
    checker.report("lora.trainable_token_indices", "\"{}\" means the tokens of model.add_tokens, which is empty",
                   kNewTokens);
  if (checker.usable({"recipe.name"}) && config.recipe.name == kAutoRecipe)
    checker.report("recipe.name", "{} does not support lora; name a recipe", kAutoRecipe);
}

}  // namespace quench
