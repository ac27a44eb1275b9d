#include "train/check/check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "core/memory/memory_limit.h"
#include "core/system/nearest_name.h"
#include "export/table/mixed_types.h"
#include "nn/optim/table.h"
#include "recipes/recipe.h"
#include "train/check/checks.h"
#include "train/config/best_metric.h"
#include "train/config/fields/field.h"
#include "train/config/recipe_choice.h"

namespace quench {
namespace {

void check_batch(Checker& checker) {
  if (!checker.usable({"training.global_batch_size", "training.micro_batch_size"})) return;
  const TrainingSection& training = checker.config().training;
  const std::int64_t unit = training.micro_batch_size;
  if (!training.global_batch_size || *training.global_batch_size % unit == 0) return;
  checker.report("training.global_batch_size", "{} is not divisible by micro_batch_size {}; nearest: {}",
                 *training.global_batch_size, unit, nearest_multiples(*training.global_batch_size, unit));
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
  using Decay = LrScheduleEntry::Decay;
  const LrScheduleEntry* entry = checker.usable({"lr_schedule.name"}) ? lr_schedules().find(schedule.name) : nullptr;
  if (entry != nullptr && entry->decay == Decay::none && (schedule.decay_steps || schedule.decay_ratio)) {
    const std::string key = schedule.decay_steps ? "decay_steps" : "decay_ratio";
    checker.report("lr_schedule." + key, "the {} schedule has no decay; remove it or choose another", schedule.name);
    return;
  }
  if (!steps || !checker.usable({"training.steps", "lr_schedule.warmup_steps"})) return;
  if (schedule.warmup_steps > *steps) {
    checker.report("lr_schedule.warmup_steps", "{} steps of warmup exceed training.steps {}: lower it too",
                   schedule.warmup_steps, *steps);
    return;
  }
  // A decay after the warm-up may exceed the run.
  if (entry == nullptr || entry->decay != Decay::at_end ||
      !checker.usable({"lr_schedule.decay_steps", "lr_schedule.decay_ratio"}))
    return;
  const std::int64_t decay = lr_schedule_options(checker.config(), *steps).decay_steps.value_or(0);
  if (decay <= *steps - schedule.warmup_steps) return;
  const std::string what = schedule.decay_ratio
                               ? fmt::format("{} of {} steps = {} steps of decay", *schedule.decay_ratio, *steps, decay)
                               : fmt::format("{} steps of decay", decay);
  checker.report(schedule.decay_ratio ? "lr_schedule.decay_ratio" : "lr_schedule.decay_steps",
                 "{} after {} of warmup exceed training.steps {}", what, schedule.warmup_steps, *steps);
}

// Patterns are matched where the model is built.
void check_frozen(Checker& checker) {
  const RunConfig& config = checker.config();
  if (!config.lora) return;
  for (const auto& [key, patterns] :
       {std::pair("training.freeze", &config.training.freeze), {"training.train", &config.training.train}})
    if (!patterns->empty() && checker.usable({key}))
      checker.report(key, "has no effect with lora, which trains the adapters alone; use lora.targets instead");
}

void check_groups(Checker& checker) {
  const OptimizerSection& optimizer = checker.config().optimizer;
  if (!checker.usable({"optimizer.groups", "optimizer.lr"}) || optimizer.lr > 0) return;
  if (std::ranges::any_of(optimizer.groups, [](const ParameterGroup& group) { return group.lr.value_or(0) > 0; }))
    checker.report("optimizer.groups", "a group has an lr, but optimizer.lr is 0, whose schedule it follows");
}

void check_state_offload(Checker& checker) {
  const OptimizerSection& optimizer = checker.config().optimizer;
  if (optimizer.offload_streamed && optimizer.offload_ratio == 0 &&
      checker.usable({"optimizer.offload_streamed", "optimizer.offload_ratio"}))
    checker.report("optimizer.offload_streamed",
                   "true, but optimizer.offload_ratio is 0: no state is offloaded; "
                   "set it to the share of the state that waits in host memory");
}

void check_update_in_backward(Checker& checker) {
  constexpr const char* kKey = "optimizer.update_in_backward";
  const RunConfig& config = checker.config();
  const OptimizerSection& optimizer = config.optimizer;
  if (!optimizer.update_in_backward || !checker.usable({kKey})) return;
  const ParallelSection& parallel = config.parallel;
  if (checker.usable({"training.max_norm"}) && config.training.max_norm > 0)
    checker.report(kKey,
                   "true, but training.max_norm is {}: gradients are freed before the norm of all of them is known; "
                   "set training.max_norm to 0",
                   config.training.max_norm);
  if (checker.usable({"training.on_nonfinite"}) && config.training.on_nonfinite == NonfinitePolicy::skip)
    checker.report(kKey,
                   "true, but training.on_nonfinite is skip: layers are updated before a later one is known to be "
                   "not finite; use stop or rollback");
  if (checker.usable({"optimizer.offload_ratio", "optimizer.offload_streamed"}) && optimizer.offload_ratio > 0 &&
      !optimizer.offload_streamed)
    checker.report(kKey,
                   "true, but state of optimizer.offload_ratio comes back during the whole backward pass; set "
                   "optimizer.offload_streamed to true");
  for (const auto& [key, ranks] :
       {std::pair("parallel.tensor", parallel.tensor), {"parallel.pipeline", parallel.pipeline}})
    if (checker.usable({key}) && ranks > 1)
      checker.report(kKey, "true, but {} is {}: gradients are summed over its ranks after the pass", key, ranks);
}

void check_split_master(Checker& checker) {
  const RunConfig& config = checker.config();
  if (!config.training.master_split || !checker.usable({"training.master_split"})) return;
  if (checker.usable({"training.dtype", "training.master_dtype"}) &&
      (config.training.dtype != DType::bf16 || !config.training.master_dtype))
    checker.report("training.master_split",
                   "true, but there are no master weights: it needs training.dtype bf16 and "
                   "training.master_dtype f32");
  if (checker.usable({"optimizer.name"}) && config.optimizer.name != OptimizerSection().name)
    checker.report("training.master_split", "true, but optimizer.name is {}; only {} splits master weights",
                   config.optimizer.name, OptimizerSection().name);
}

void check_average(Checker& checker) {
  const TrainingSection& training = checker.config().training;
  if (training.ema_dtype != TrainingSection().ema_dtype && !training.ema_decay &&
      checker.usable({"training.ema_dtype", "training.ema_decay"}))
    checker.report("training.ema_dtype", "{}, but training.ema_decay is not set", to_string(training.ema_dtype));
}

// Without validation there is no best step.
void check_best(Checker& checker) {
  const RunConfig& config = checker.config();
  if (!checker.usable({"data.validation", "data.validation_split", "evaluation.interval"})) return;
  const char* missing = !config.data.has_validation()     ? "data.validation is empty"
                        : config.evaluation.interval == 0 ? "evaluation.interval is 0"
                                                          : nullptr;
  if (config.evaluation.early_stopping.patience > 0 && missing != nullptr)
    checker.report("evaluation.early_stopping.patience", "{}, but {}", config.evaluation.early_stopping.patience,
                   missing);
  if (config.checkpoint.keep_best && missing != nullptr)
    checker.report("checkpoint.keep_best", "true, but {}", missing);
  const bool used = config.evaluation.early_stopping.patience > 0 || config.checkpoint.keep_best;
  const std::string& metric = config.evaluation.early_stopping.metric;
  const std::vector<std::string> names = best_metric_names(config);
  const std::optional<BestMetric> best = find_best_metric(metric);
  if (used && best && std::ranges::find(names, metric) == names.end())
    checker.report("evaluation.early_stopping.metric", "{}, but the validation {} section {} has none; use {}", metric,
                   best->owner != nullptr ? "without" : "with",
                   best->owner != nullptr ? best->owner->name : objective_of(config).name, fmt::join(names, ", "));
  if (config.checkpoint.keep_best && missing == nullptr && !config.checkpoint.enable)
    checker.report("checkpoint.keep_best", "true, but checkpoint.enable is false");
}

// Keys that the chosen `name` would silently ignore; `general` keys always apply.
void check_used_keys(Checker& checker, std::string_view section, std::string_view chosen,
                     std::initializer_list<std::string_view> general, std::span<const std::string_view> keys) {
  const RunConfig& config = checker.config();
  for (const Field& field : field_table()) {
    if (field.section() != section || field.key().starts_with("filter.") || !checker.usable({field.path})) continue;
    if (std::ranges::count(general, field.key()) + std::ranges::count(keys, field.key()) > 0) continue;
    const Json value = field.write(config);
    if (value != field.write(default_config()))
      checker.report(field.path, "{}, but {}.name {} does not use it", value.dump(), section, chosen);
  }
}

void check_choices(Checker& checker) {
  const RunConfig& config = checker.config();
  if (checker.usable({"recipe.name"}) && config.recipe.name != kAutoRecipe)  // may resolve to any recipe
    check_used_keys(checker, "recipe", config.recipe.name, {"name", "high_precision_tail", "start_step", "stop_step"},
                    recipes::find_recipe(config.recipe.name).capabilities.keys);
  if (checker.usable({"optimizer.name"}))
    check_used_keys(checker, "optimizer", config.optimizer.name,
                    {"name", "lr", "weight_decay", "decay_exclude", "groups", "stochastic_rounding", "offload_ratio",
                     "offload_streamed", "update_in_backward"},
                    nn::find_optimizer(config.optimizer.name).keys);
}

// Applies in no step.
void check_recipe_steps(Checker& checker) {
  const RecipeSection& recipe = checker.config().recipe;
  const std::optional<std::int64_t> steps = checker.config().training.steps;
  if (!checker.usable({"recipe.start_step", "recipe.stop_step"})) return;
  if (recipe.stop_step && recipe.start_step >= *recipe.stop_step)
    checker.report("recipe.start_step", "{} is not less than recipe.stop_step {}: the recipe would never apply",
                   recipe.start_step, *recipe.stop_step);
  else if (steps && checker.usable({"training.steps"}) && recipe.start_step >= *steps)
    checker.report("recipe.start_step", "{} is not less than training.steps {}: the recipe would never apply",
                   recipe.start_step, *steps);
}

void check_quantization_aware(Checker& checker) {
  const RunConfig& config = checker.config();
  const RecipeSection& recipe = config.recipe;
  if (recipe.embedding_group_size && !recipe.embedding_bits && checker.usable({"recipe.embedding_bits"}))
    checker.report("recipe.embedding_group_size", "has no effect without recipe.embedding_bits");
  if (checker.usable({"recipe.name", "recipe.gguf_scheme"}) && recipe.name != kAutoRecipe &&
      recipes::find_recipe(recipe.name).has_key("gguf_scheme"))
    checker.judge("recipe.gguf_scheme", [&] { (void)require_gguf_scheme(recipe.gguf_scheme, "recipe.gguf_scheme"); });
  if (checker.usable({"recipe.name", "recipe.rules", "recipe.gguf_scheme"}))
    checker.judge("recipe.rules", [&] { (void)recipe_rules(recipe); });
  if (recipe.weight_grid != default_config().recipe.weight_grid && checker.usable({"recipe.weight_grid"})) {
    if (recipe.weight_bits && checker.usable({"recipe.weight_bits"}))
      checker.report("recipe.weight_bits", "has no effect under recipe.weight_grid {}, which has its own levels",
                     recipe.weight_grid);
    if (recipe.asymmetric_weights)
      checker.report("recipe.asymmetric_weights",
                     "true is incompatible with recipe.weight_grid {}, whose levels lie around 0", recipe.weight_grid);
  }
  if (!checker.usable({"recipe.learned_scales"})) return;
  if (!recipe.learned_scales && recipe.scale_lr != default_config().recipe.scale_lr &&
      checker.usable({"recipe.scale_lr"}))
    checker.report("recipe.scale_lr", "has no effect without recipe.learned_scales");
  if (!recipe.learned_scales) return;
  const auto refuse = [&](bool other, std::string_view what) {
    if (other) checker.report("recipe.learned_scales", "true is incompatible with {}", what);
  };
  refuse(recipe.asymmetric_weights, "recipe.asymmetric_weights (zero points are not learned)");
  refuse(!recipe.rules.empty(), "recipe.rules (scales are learned under one scheme)");
  refuse(config.lora.has_value(), "lora (the base is frozen)");
  refuse(recipe.start_step > 0 || recipe.stop_step || recipe.high_precision_tail > 0,
         "recipe.start_step, stop_step and high_precision_tail (scales are trained in every step)");
}

void check_scaling(Checker& checker) {
  const RecipeSection& recipe = checker.config().recipe;
  if (!checker.usable({"recipe.name", "recipe.scaling"})) return;
  const bool delayed = recipe.scaling == RecipeSection::Scaling::delayed;
  if (delayed && recipe.name == kAutoRecipe)
    checker.report("recipe.scaling",
                   "delayed, but recipe.name is auto, which may choose a recipe without it; set recipe.name to {}",
                   recipes::kFloat8Tensorwise.name);
  if (delayed || recipe.name != recipes::kFloat8Tensorwise.name) return;
  const RecipeSection& usual = default_config().recipe;
  for (const auto& [key, changed] : {std::pair("recipe.amax_history", recipe.amax_history != usual.amax_history),
                                     {"recipe.amax_margin", recipe.amax_margin != usual.amax_margin}})
    if (changed && checker.usable({key})) checker.report(key, "has no effect unless recipe.scaling is \"delayed\"");
}

// No effect without a GEMM of quantized gradients.
void check_gradient_rounding(Checker& checker) {
  const RecipeSection& recipe = checker.config().recipe;
  if (!checker.usable({"recipe.gradient_rounding", "recipe.name", "recipe.high_precision_gemms"}) ||
      recipe.gradient_rounding == RecipeSection::GradientRounding::nearest)
    return;
  const auto stays = [&](std::string_view product) {
    return std::ranges::find(recipe.high_precision_gemms, product) != recipe.high_precision_gemms.end();
  };
  const auto quantizes = [&](recipes::LinearGemm gemm, std::string_view name) {
    if (stays(name)) return false;
    if (recipe.name == kAutoRecipe) return true;
    const auto float8 = recipes::find_recipe(recipe.name).capabilities.float8;
    return std::ranges::find(float8, gemm) != float8.end();
  };
  if (recipe.name != kAutoRecipe && !recipes::find_recipe(recipe.name).capabilities.quantizes_gradients()) return;
  if (!quantizes(recipes::LinearGemm::dgrad, "dgrad") && !quantizes(recipes::LinearGemm::wgrad, "wgrad"))
    checker.report("recipe.gradient_rounding",
                   "stochastic, but recipe.high_precision_gemms leaves no GEMM with quantized gradients");
}

void check_batch_invariance(Checker& checker) {
  const RecipeSection& recipe = checker.config().recipe;
  if (!checker.config().training.batch_invariant || recipe.name == kAutoRecipe ||
      !checker.usable({"training.batch_invariant", "recipe.name", "recipe.high_precision_gemms"}))
    return;
  if (recipes::find_recipe(recipe.name).capabilities.mixes_rows() &&
      std::ranges::find(recipe.high_precision_gemms, "forward") == recipe.high_precision_gemms.end())
    checker.report("training.batch_invariant",
                   "true, but the scales of recipe.name {} are those of all rows together; use {}, or add \"forward\" "
                   "to recipe.high_precision_gemms",
                   recipe.name, recipes::kFloat8Rowwise.name);
}

}  // namespace

std::string nearest_multiples(std::int64_t number, std::int64_t unit) {
  const std::int64_t below = number / unit * unit;
  return below == 0 ? fmt::format("{}", unit) : fmt::format("{} or {}", below, below + unit);
}

void check_training(Checker& checker) {
  const TrainingSection& training = checker.config().training;
  if (!training.memory_limit.empty() && checker.usable({"training.memory_limit"}) &&
      parse_memory_size(training.memory_limit).value_or(0) <= kMostOutsideBytes)
    checker.report("training.memory_limit", "'{}' is not a size above 1 GiB, such as 24GB or 16GiB",
                   training.memory_limit);
  if (!training.steps && !training.epochs && checker.usable({"training.steps", "training.epochs"}))
    checker.report("training.steps", "the length of the run is missing: give training.steps or training.epochs");
  check_frozen(checker);
  check_groups(checker);
  check_average(checker);
  check_split_master(checker);
  check_state_offload(checker);
  check_update_in_backward(checker);
  check_best(checker);
  check_batch(checker);
  check_activations(checker);
  check_schedule(checker);
  check_choices(checker);
  check_gradient_rounding(checker);
  check_scaling(checker);
  check_batch_invariance(checker);
  check_recipe_steps(checker);
  check_quantization_aware(checker);
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
  check_parallel(checker);
  check_outputs(checker);
  check_export(checker);
  check_adapters(checker);
  check_objectives(checker);
  return checker.take_issues();
}

LrScheduleOptions lr_schedule_options(const RunConfig& config, std::int64_t total_steps) {
  const LrScheduleSection& schedule = config.lr_schedule;
  QUENCH_CHECK_AS(ErrorCode::bad_config, schedule.warmup_steps <= total_steps,
                  "lr_schedule.warmup_steps: {} steps of warmup exceed the {} steps of the run; lower it, or train for "
                  "longer (training.steps, training.epochs)",
                  schedule.warmup_steps, total_steps);
  std::optional<std::int64_t> decay_steps = schedule.decay_steps;
  if (schedule.decay_ratio)
    decay_steps = std::max<std::int64_t>(1, std::llround(*schedule.decay_ratio * static_cast<double>(total_steps)));
  return {.name = schedule.name,
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
  const std::int64_t whole = *training.global_batch_size;
  if (whole % unit != 0) {
    std::string reason =
        fmt::format("{} is not divisible by micro_batch_size {} x {} ranks = {}; nearest: {}", whole,
                    training.micro_batch_size, data_parallel_ranks, unit, nearest_multiples(whole, unit));
    if (whole % data_parallel_ranks == 0) {
      std::int64_t micro = std::min(training.micro_batch_size, whole / data_parallel_ranks);
      while (whole / data_parallel_ranks % micro != 0) --micro;
      reason += fmt::format(", or training.micro_batch_size {}", micro);
    }
    throw ConfigError({{"", "training.global_batch_size", std::move(reason), ""}});
  }
  return whole / unit;
}

std::vector<ConfigIssue> check_on_device(const RunConfig& config, Device device) {
  std::vector<ConfigIssue> issues;
  if (!device.is_cpu()) return issues;
  const auto report = [&](const char* key, std::string reason) { issues.push_back({"", key, std::move(reason), ""}); };
  if (config.training.offload_layers > 0)
    report("training.offload_layers", fmt::format("{}, but a CPU run's activations are in host memory; set it to 0",
                                                  config.training.offload_layers));
  if (config.optimizer.offload_ratio > 0)
    report("optimizer.offload_ratio",
           fmt::format("{}, but a CPU run's state is in host memory; set it to 0", config.optimizer.offload_ratio));
  if (!config.training.memory_limit.empty())
    report("training.memory_limit",
           fmt::format("{} limits GPU memory, and this is a CPU run; omit it (host memory: ulimit -v, or a cgroup)",
                       config.training.memory_limit));
  return issues;
}

void require_on_device(const RunConfig& config, Device device) {
  if (std::vector<ConfigIssue> issues = check_on_device(config, device); !issues.empty())
    throw ConfigError(std::move(issues));
}

}  // namespace quench
