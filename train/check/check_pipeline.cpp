// Pipeline parallelism: what runs in stages of layers.

#include <numeric>

#include "train/check/checks.h"
#include "train/config/objective_table.h"
#include "train/config/recipe_choice.h"

namespace quench {
namespace {

// The reason why a run with stages is refused; empty: none.
std::string unstaged_part(const Checker& checker) {
  const RunConfig& config = checker.config();
  const auto usable = [&](std::string_view key) { return checker.usable({key}); };
  if (const ObjectiveEntry& objective = objective_of(config); !objective.takes_stages)
    return fmt::format("the objective {} reads the whole model", objective.name);
  if (config.lora && config.lora->base == recipes::BaseForm::stored) return "lora.base stored is read as a whole";
  if (config.lora &&
      (!config.lora->modules_to_save.empty() || !config.lora->trainable_token_indices.embedding.ids.empty() ||
       !config.lora->trainable_token_indices.head.ids.empty()))
    return "lora.modules_to_save and lora.trainable_token_indices copy modules of one stage";
  if (usable("optimizer.offload_ratio") && config.optimizer.offload_ratio > 0 && !config.optimizer.offload_streamed)
    return "optimizer.offload_ratio follows the layers of one micro-batch (optimizer.offload_streamed does not)";
  if (usable("training.offload_layers") && config.training.offload_layers > 0)
    return "training.offload_layers follows the layers of one micro-batch";
  if (usable("evaluation.prompts") && !config.evaluation.prompts.empty())
    return "evaluation.prompts generates with the whole model";
  if (usable("recipe.name") && config.recipe.name == kAutoRecipe) return "recipe.name auto measures the whole model";
  if (usable("recipe.scaling") && config.recipe.scaling == RecipeSection::Scaling::delayed)
    return "recipe.scaling delayed keeps the history of all layers";
  if (usable("recipe.learned_scales") && config.recipe.learned_scales)
    return "recipe.learned_scales starts from the whole model";
  if (usable("model.add_tokens") && !config.model.add_tokens.empty()) return "model.add_tokens adds rows at both ends";
  return {};
}

void check_chunks(Checker& checker) {
  const ParallelSection& parallel = checker.config().parallel;
  if (!checker.usable({"parallel.pipeline_schedule", "parallel.pipeline_chunks", "parallel.pipeline_layers"})) return;
  if (parallel.pipeline == 1) {
    if (!parallel.pipeline_layers.empty())
      checker.report("parallel.pipeline_layers", "a list, but parallel.pipeline is 1; set that, or leave it out");
    if (parallel.chunks() > 1)
      checker.report("parallel.pipeline_schedule",
                     "interleaved, but parallel.pipeline is 1; set that, or leave it out");
    return;
  }
  if (parallel.chunks() == 1 && parallel.pipeline_chunks != ParallelSection().pipeline_chunks)
    checker.report("parallel.pipeline_chunks",
                   "{}, but parallel.pipeline_schedule is 1f1b, with one chunk a stage; set it to interleaved",
                   parallel.pipeline_chunks);
  const std::int64_t chunks = parallel.pipeline * parallel.chunks();
  if (const auto& layers = parallel.pipeline_layers; !layers.empty() && std::ssize(layers) != chunks)
    checker.report("parallel.pipeline_layers", "{} numbers, expected {}: one for each of {} stages{}", layers.size(),
                   chunks, parallel.pipeline,
                   parallel.chunks() > 1 ? fmt::format(" x {} chunks", parallel.chunks()) : "");
}

}  // namespace

void check_pipeline(Checker& checker) {
  if (!checker.usable({"parallel.pipeline"})) return;
  check_chunks(checker);
  const std::int64_t stages = checker.config().parallel.pipeline;
  if (stages == 1) return;
  if (const std::string reason = unstaged_part(checker); !reason.empty())
    checker.report("parallel.pipeline", "{} stages of the layers, but {}; set one of the two to its default", stages,
                   reason);
  const RunConfig& config = checker.config();
  if (config.export_model &&
      (config.lora || !config.export_model->quantization.scheme.empty() || !config.export_model->sparsity.empty()))
    checker.report("parallel.pipeline",
                   "{} stages of the layers, but section export quantizes, prunes or merges the whole model; leave it "
                   "out and write the model from the checkpoint with quench export",
                   stages);
}

void check_pipeline_model(Checker& checker, const nn::ModelConfig& model) {
  const ParallelSection& parallel = checker.config().parallel;
  if (parallel.pipeline == 1 ||
      !checker.usable({"parallel.pipeline", "parallel.pipeline_schedule", "parallel.pipeline_layers"}))
    return;
  const std::int64_t layers = model.num_hidden_layers, chunks = parallel.pipeline * parallel.chunks();
  if (chunks > layers)
    checker.report("parallel.pipeline", "{} stages{} of a model with {} layers: each needs one; lower it",
                   parallel.pipeline, parallel.chunks() > 1 ? fmt::format(" x {} chunks", parallel.chunks()) : "",
                   layers);
  const auto& given = parallel.pipeline_layers;
  if (const std::int64_t sum = std::accumulate(given.begin(), given.end(), std::int64_t{0});
      std::ssize(given) == chunks && sum != layers)
    checker.report("parallel.pipeline_layers", "{} add up to {}, but the model has {} layers", fmt::join(given, " + "),
                   sum, layers);
}

}  // namespace quench
