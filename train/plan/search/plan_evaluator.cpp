#include "train/plan/search/plan_evaluator.h"

#include <algorithm>
#include <limits>

#include "train/check/load.h"
#include "train/config/presets.h"
#include "train/session/model_setup.h"
#include "train/session/parallel_setup.h"

namespace quench {
namespace {

constexpr Device kPlannedDevice{DeviceType::cuda, 0};
constexpr CheckOptions kWithoutFiles{.data = false, .files = false};

// "training.micro_batch_size" in its section; "recipe.filter.exclude" two levels deep.
void set_key(Json& document, std::string_view key, const Json& value) {
  const std::size_t dot = key.find('.');
  if (dot == std::string_view::npos) {
    document.set(key, value);
    return;
  }
  const std::string_view section = key.substr(0, dot);
  if (document.find(section) == nullptr) document.set(section, Json::object());
  set_key(*document.find(section), key.substr(dot + 1), value);
}

// Planned with one step; the written config has no number of steps.
RunConfig config_of_one(Json document, const PlanRequest& request) {
  set_key(document, "training.steps", 1);
  return run_config_from_json(std::move(document), "plan", request.overrides, kWithoutFiles);
}

RunConfig config_of(Json document, const PlanRequest& request) {
  RunConfig config = config_of_one(std::move(document), request);
  set_ranks(config, request.gpus);
  return config;
}

std::int64_t over(const RunEstimate& estimate, const PlanRequest& request) {
  if (estimate.available_bytes && estimate.total_bytes > *estimate.available_bytes)
    return estimate.total_bytes - *estimate.available_bytes;
  const std::int64_t node = std::min(request.gpus, request.cluster.node_size);
  return request.host_bytes > 0 ? std::max<std::int64_t>(0, estimate.host_bytes * node - request.host_bytes) : 0;
}

bool is_refusal(const Error& error) {
  return error.code() == ErrorCode::bad_config || error.code() == ErrorCode::unsupported;
}

}  // namespace

PlanEvaluator::PlanEvaluator(const PlanRequest& request) : request_(request), base_(planned_document(request)) {
  const RunConfig config = config_of_one(base_, request);
  const nn::ModelConfig model = run_model_config(config);
  layers_ = model.num_hidden_layers;
  shallow_ = shallow_models(model);
  for (const PlanAxis& axis : plan_axes()) choices_.push_back(choices_of(axis, request, model));
}

std::size_t PlanEvaluator::keys(const PlanCombination& combination) const {
  std::size_t count = 0;
  for (std::size_t axis = 0; axis < combination.size(); ++axis)
    count += choices_[axis][combination[axis]].values.size();
  return count;
}

std::vector<PlanCombination> PlanEvaluator::combinations() const {
  std::vector<PlanCombination> all{{}};
  for (const std::vector<PlanChoice>& choices : choices_) {
    std::vector<PlanCombination> longer;
    for (const PlanCombination& one : all)
      for (std::size_t i = 0; i < choices.size(); ++i) {
        longer.push_back(one);
        longer.back().push_back(i);
      }
    all = std::move(longer);
  }
  std::ranges::stable_sort(all, {}, [&](const PlanCombination& one) { return keys(one); });
  return all;
}

Json PlanEvaluator::document(const PlanCombination& combination) const {
  Json all = base_;
  for (std::size_t axis = 0; axis < combination.size(); ++axis)
    for (const auto& [key, value] : choices_[axis][combination[axis]].values) set_key(all, key, value);
  return all;
}

const PlanEvaluator::Split& PlanEvaluator::split(const PlanCombination& combination) {
  Split& split = splits_[combination];
  if (!split.micro_batches.empty()) return split;
  try {
    const ParallelSection parallel = config_of(document(combination), request_).parallel;
    const std::int64_t ranks = parallel.data_ranks();
    if (request_.sequences() % ranks == 0) split.sequences = request_.sequences() / ranks;
    split.stages = parallel.pipeline;
    split.chunks = parallel.chunks();
  } catch (const Error& error) {
    if (!is_refusal(error)) throw;
  }
  split.micro_batches = micro_batches_of(request_, split.sequences);
  return split;
}

double PlanEvaluator::bubble(const PlanCombination& combination, std::size_t size) {
  const Split& one = split(combination);
  const std::int64_t sequences = one.micro_batches[size];
  return sequences == 0
             ? 0
             : static_cast<double>((one.stages - 1) * sequences) / static_cast<double>(one.sequences * one.chunks);
}

std::optional<RunEstimate> PlanEvaluator::by_depth(const RunConfig& config) const {
  if (!shallow_ || !scales_with_depth(config, request_.overrides)) return std::nullopt;
  RunEstimate tensors = estimate_by_depth(config, layers_, *shallow_, kPlannedDevice, request_.cluster);
  if (over(tensors, request_) > 0) return tensors;
  const std::optional<double> gaps = most_gaps(config, layers_);
  if (!gaps) return std::nullopt;
  RunEstimate most = tensors;
  most.total_bytes = static_cast<std::int64_t>(*gaps * static_cast<double>(tensors.total_bytes));
  return over(most, request_) == 0 ? std::optional(std::move(tensors)) : std::nullopt;
}

PlanEvaluator::Evaluated PlanEvaluator::evaluate(const PlanCombination& combination, std::size_t size, bool brief) {
  PlannedRun run;
  run.document = document(combination);
  for (std::size_t axis = 0; axis < combination.size(); ++axis)
    run.choices.push_back(choices_[axis][combination[axis]].label);
  if (const std::int64_t sequences = micro_batches(combination)[size]; sequences > 0)
    set_key(run.document, "training.micro_batch_size", sequences);
  try {
    const RunConfig config = config_of(run.document, request_);
    run.micro_batch = config.training.micro_batch_size;
    run.sequences = request_.sequences() / config.parallel.data_ranks();
    std::optional<RunEstimate> deep = brief ? by_depth(config) : std::nullopt;
    run.estimate = deep ? std::move(*deep)
                        : estimate_run(ResolvedConfig(config), kPlannedDevice, request_.cluster, {.brief = brief});
  } catch (const Error& error) {
    if (!is_refusal(error)) throw;
    return {std::nullopt, error.what()};
  }
  QUENCH_CHECK_AS(ErrorCode::bad_config, run.estimate.time.has_value(),
                  "step times are predicted for training.dtype bf16 alone");
  run.over_bytes = over(run.estimate, request_);
  return {std::move(run), {}};
}

const PlannedRun* PlanEvaluator::run(const PlanCombination& combination, std::size_t size) {
  const std::pair key(combination, size);
  auto found = evaluated_.find(key);
  if (found == evaluated_.end()) {
    found = evaluated_.emplace(key, evaluate(combination, size, true)).first;
    ++estimates_;
  }
  return found->second.run ? &*found->second.run : nullptr;
}

std::string PlanEvaluator::fault(const PlanCombination& combination) const {
  for (const auto& [key, evaluated] : evaluated_)
    if (key.first == combination && !evaluated.fault.empty()) return evaluated.fault;
  return {};
}

const PlannedRun* PlanEvaluator::confirm(const PlanCombination& combination, std::size_t size) {
  Evaluated& evaluated = evaluated_[{combination, size}] = evaluate(combination, size, false);
  ++estimates_;
  return evaluated.run ? &*evaluated.run : nullptr;
}

std::optional<std::size_t> PlanEvaluator::largest_fit(const PlanCombination& combination, std::size_t largest) {
  const auto fits = [&](std::size_t size) {
    const PlannedRun* one = run(combination, size);
    return one != nullptr && one->over_bytes == 0;
  };
  std::size_t too_large = largest, small = micro_batches(combination).size() - 1;
  if (fits(largest)) return largest;
  if (small == largest || !fits(small)) return std::nullopt;
  while (small - too_large > 1) {
    const std::size_t middle = (small + too_large) / 2;
    (fits(middle) ? small : too_large) = middle;
  }
  return small;
}

std::optional<std::size_t> PlanEvaluator::fastest_fit(const PlanCombination& combination) {
  std::optional<std::size_t> fastest = largest_fit(combination);
  if (!fastest || !is_pipelined(combination)) return fastest;
  const auto seconds = [&](std::size_t size) { return run(combination, size)->estimate.time->total(); };
  while (*fastest + 1 < micro_batches(combination).size() && seconds(*fastest + 1) < seconds(*fastest)) ++*fastest;
  return fastest;
}

double PlanEvaluator::least_computation(const PlanCombination& combination) const {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [key, evaluated] : evaluated_) {
    bool same = evaluated.run.has_value();
    for (std::size_t axis = 0; axis < combination.size(); ++axis)
      same = same && (!plan_axes()[axis].is_numerics || key.first[axis] == combination[axis]);
    if (!same) continue;
    const StepTime& time = *evaluated.run->estimate.time;
    least = std::min(least, time.products + time.attention + time.passes);
  }
  return std::isinf(least) ? 0 : least;
}

const PlannedRun* PlanEvaluator::smallest() const {
  const PlannedRun* least = nullptr;
  for (const auto& [key, evaluated] : evaluated_)
    if (evaluated.run && (least == nullptr || evaluated.run->estimate.total_bytes < least->estimate.total_bytes))
      least = &*evaluated.run;
  return least;
}

}  // namespace quench
