#include "train/config/check.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "train/config/checker.h"
#include "train/config/field.h"
#include "train/config/nearest.h"

namespace quench {
namespace {

void check_batch(Checker& checker) {
  if (!checker.usable(
          {"training.global_batch_size", "training.micro_batch_size", "parallel.shard", "parallel.replicate"}))
    return;
  const TrainingSection& training = checker.config().training;
  if (!training.global_batch_size) return;
  // With shard -1 the number of ranks is known only when the processes have met; then one replica is the least.
  const std::int64_t shard = std::max<std::int64_t>(checker.config().parallel.shard, 1);
  const std::int64_t ranks = shard * checker.config().parallel.replicate;
  const std::int64_t unit = training.micro_batch_size * ranks;
  if (*training.global_batch_size % unit == 0) return;
  const std::string per_rank = ranks == 1 ? "" : fmt::format(" x {} ranks = {}", ranks, unit);
  const std::int64_t below = *training.global_batch_size / unit * unit;
  const std::string near = below == 0 ? fmt::format("{}", unit) : fmt::format("{} or {}", below, below + unit);
  checker.report("training.global_batch_size", "{} is not divisible by micro_batch_size {}{}; nearest: {}",
                 *training.global_batch_size, training.micro_batch_size, per_rank, near);
}

void check_schedule(Checker& checker) {
  const LrScheduleSection& schedule = checker.config().lr_schedule;
  const std::optional<std::int64_t> steps = checker.config().training.steps;
  if (schedule.decay_steps && schedule.decay_ratio &&
      checker.usable({"lr_schedule.decay_steps", "lr_schedule.decay_ratio"})) {
    checker.report("lr_schedule.decay_ratio", "{} contradicts decay_steps {}; give one of the two",
                   *schedule.decay_ratio, *schedule.decay_steps);
    return;
  }
  if (schedule.name == LrScheduleKind::constant && (schedule.decay_steps || schedule.decay_ratio)) {
    const std::string key = schedule.decay_steps ? "decay_steps" : "decay_ratio";
    checker.report("lr_schedule." + key, "the constant schedule has no decay; remove it or choose wsd");
    return;
  }
  if (!steps || !checker.usable({"training.steps", "lr_schedule.warmup_steps"})) return;
  if (schedule.warmup_steps > *steps) {
    checker.report("lr_schedule.warmup_steps", "{} steps of warmup exceed training.steps {}", schedule.warmup_steps,
                   *steps);
    return;
  }
  // The decay of cosine and linear may end after the run; that of wsd ends with it.
  if (schedule.name != LrScheduleKind::wsd ||
      !checker.usable({"lr_schedule.name", "lr_schedule.decay_steps", "lr_schedule.decay_ratio"}))
    return;
  const std::int64_t decay = lr_schedule_options(checker.config(), *steps).decay_steps.value_or(0);
  if (decay <= *steps - schedule.warmup_steps) return;
  const std::string what = schedule.decay_ratio
                               ? fmt::format("{} of {} steps = {} steps of decay", *schedule.decay_ratio, *steps, decay)
                               : fmt::format("{} steps of decay", decay);
  checker.report(schedule.decay_ratio ? "lr_schedule.decay_ratio" : "lr_schedule.decay_steps",
                 "{} after {} of warmup exceed training.steps {}", what, schedule.warmup_steps, *steps);
}

// Rounding is an option of what a recipe quantizes: without that it would be silently ignored. "auto" may choose
// either.
void check_gradient_rounding(Checker& checker) {
  const RecipeSection& recipe = checker.config().recipe;
  if (!checker.usable({"recipe.gradient_rounding", "recipe.name", "recipe.high_precision_gemms"}) ||
      recipe.gradient_rounding == RecipeSection::GradientRounding::nearest)
    return;
  if (!recipe.name.starts_with("float8_") && recipe.name != "auto") {
    checker.report("recipe.gradient_rounding", "stochastic, but recipe.name {} makes no float8 gradients", recipe.name);
    return;
  }
  const auto stays = [&](std::string_view product) {
    return std::ranges::find(recipe.high_precision_gemms, product) != recipe.high_precision_gemms.end();
  };
  if (stays("dgrad") && (stays("wgrad") || recipe.name == "float8_rowwise_with_gw_hp"))
    checker.report("recipe.gradient_rounding",
                   "stochastic, but with recipe.high_precision_gemms no product reads float8 gradients");
}

// Without state that travels the key would be silently ignored.
void check_state_offload(Checker& checker) {
  const OptimizerSection& optimizer = checker.config().optimizer;
  if (!checker.usable({"optimizer.offload_ratio", "optimizer.return_during_update"})) return;
  if (optimizer.return_during_update > 0 && optimizer.offload_ratio == 0)
    checker.report("optimizer.return_during_update",
                   "{}, but optimizer.offload_ratio is 0: no state is away that could return; raise it, or set "
                   "return_during_update to 0",
                   optimizer.return_during_update);
}

void check_parallel(Checker& checker) {
  const ParallelSection& parallel = checker.config().parallel;
  if (!checker.usable({"parallel.shard", "parallel.expert"})) return;
  if (parallel.shard == 0) {
    checker.report("parallel.shard", "0 ranks cannot hold the model; 1 for no sharding, -1 for all ranks that remain");
  } else if (parallel.shard > 0 && parallel.shard % parallel.expert != 0) {
    checker.report("parallel.expert", "{} does not divide parallel.shard {}", parallel.expert, parallel.shard);
  }
}

}  // namespace

void check_training(Checker& checker) {
  const TrainingSection& training = checker.config().training;
  if (!training.steps && !training.epochs && checker.usable({"training.steps", "training.epochs"}))
    checker.report("training.steps", "the length of the run is missing: give training.steps or training.epochs");
  check_batch(checker);
  check_schedule(checker);
  check_gradient_rounding(checker);
  check_state_offload(checker);
  check_parallel(checker);
  const CheckpointSection& checkpoint = checker.config().checkpoint;
  if (training.on_nonfinite == NonfinitePolicy::rollback &&
      checker.usable({"training.on_nonfinite", "checkpoint.enable", "checkpoint.interval"}) &&
      (!checkpoint.enable || checkpoint.interval == 0)) {
    checker.report("training.on_nonfinite", "rollback needs checkpoints to go back to, but checkpoint.{}",
                   checkpoint.enable ? "interval is 0" : "enable is false");
  }
}

std::vector<ConfigIssue> check_run_config(const RunConfig& config, const CheckOptions& options,
                                          const std::function<bool(std::string_view)>& skip) {
  Checker checker(config, options, skip);
  check_model(checker);
  check_data(checker);
  check_training(checker);
  check_outputs(checker);
  return checker.take_issues();
}

LrScheduleOptions lr_schedule_options(const RunConfig& config, std::int64_t total_steps) {
  const LrScheduleSection& schedule = config.lr_schedule;
  std::optional<std::int64_t> decay_steps = schedule.decay_steps;
  if (schedule.decay_ratio)
    decay_steps = std::max<std::int64_t>(1, std::llround(*schedule.decay_ratio * static_cast<double>(total_steps)));
  return {.kind = schedule.name,
          .peak_lr = config.optimizer.lr,
          .total_steps = total_steps,
          .warmup_steps = schedule.warmup_steps,
          .min_lr_ratio = schedule.min_lr_ratio,
          .decay_steps = decay_steps,
          .decay_shape = schedule.decay_shape};
}

std::int64_t accumulation_steps(const RunConfig& config, std::int64_t data_parallel_ranks) {
  QUENCH_CHECK(data_parallel_ranks >= 1, "accumulation_steps: {} data-parallel ranks", data_parallel_ranks);
  const TrainingSection& training = config.training;
  if (!training.global_batch_size) return 1;
  const std::int64_t unit = training.micro_batch_size * data_parallel_ranks;
  if (*training.global_batch_size % unit != 0) {
    throw ConfigError({{"", "training.global_batch_size",
                        fmt::format("{} is not divisible by micro_batch_size {} x {} ranks = {}",
                                    *training.global_batch_size, training.micro_batch_size, data_parallel_ranks, unit),
                        ""}});
  }
  return *training.global_batch_size / unit;
}

std::vector<UnsupportedFeature> unsupported_features(const RunConfig& config, const TrainerSupport& support) {
  std::vector<UnsupportedFeature> features;
  if (config.lora && !support.lora) features.push_back({"lora", "this trainer trains all weights"});
  if (!support.parallel) {
    const auto single = [&](std::string_view key, std::int64_t value) {
      if (value > 1)
        features.push_back(
            {fmt::format("parallel.{}", key), fmt::format("{} ranks, but this trainer runs on one", value)});
    };
    single("shard", config.parallel.shard);
    single("replicate", config.parallel.replicate);
    single("expert", config.parallel.expert);
  }
  if (std::find(support.recipes.begin(), support.recipes.end(), config.recipe.name) == support.recipes.end()) {
    features.push_back({"recipe.name", fmt::format("this trainer has no recipe {}; it has {}", config.recipe.name,
                                                   fmt::join(support.recipes, ", "))});
  }
  if (config.export_model && !support.export_model)
    features.push_back({"export", "this trainer does not export after training"});
  return features;
}

void require_supported(const RunConfig& config, const TrainerSupport& support) {
  const std::vector<UnsupportedFeature> features = unsupported_features(config, support);
  if (features.empty()) return;
  std::string text;
  for (const UnsupportedFeature& feature : features)
    text += fmt::format("{}{}: {}", text.empty() ? "" : "\n", feature.key, feature.reason);
  throw Error(ErrorCode::unsupported, text);
}

}  // namespace quench
