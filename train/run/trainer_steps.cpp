
#include <algorithm>
#include <cmath>

#include "core/device/call_counter.h"
#include "core/memory/allocator.h"
#include "core/system/log.h"
#include "distributed/launcher/error_file.h"
#include "train/check/check.h"
#include "train/evaluation/validation.h"
#include "train/metrics/peak_flops.h"
#include "train/run/step_profile.h"
#include "train/run/trainer_run.h"
#include "train/step/nonfinite_origin.h"
#include "train/step/update_expert_biases.h"

namespace quench {

namespace fs = std::filesystem;

std::vector<Batch> Trainer::Run::next_step_batches() {
  const std::int64_t count = accumulation_steps(config, config.parallel.ranks);
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < count; ++i) {
    std::optional<Batch> batch = loader->next();
    QUENCH_CHECK_AS(ErrorCode::failed, batch.has_value(), "the training data ended at step {}", progress.step);
    batches.push_back(std::move(*batch));
  }
  return batches;
}

bool Trainer::Run::handle_verdict(const StepVerdict& verdict) {
  if (!verdict.message.empty()) QUENCH_LOG_WARN("{}", verdict.message);
  if (verdict.spike) metrics.event({.step = progress.step + 1, .name = run_events::kSpike, .message = verdict.message});
  if (verdict.action == StepAction::skip)
    metrics.event({.step = progress.step + 1, .name = run_events::kSkip, .message = verdict.message});
  switch (verdict.action) {
    case StepAction::apply: return true;
    case StepAction::skip:
      if (writer) writer->before_change();  // a save may still read amax histories
      step->skip();
      return true;
    case StepAction::stop: step->discard(); return true;
    case StepAction::rollback: break;
  }
  step->discard();
  if (writer) report_saves(writer->wait());  // earlier failures are no reason to stay at this step
  // Not the folder's newest: it may be of a line that the run left when it resumed.
  std::vector<fs::path> line = writer ? writer->saved() : std::vector<fs::path>();
  if (!resumed_path.empty()) line.push_back(resumed_path);
  const fs::path loaded =
      load_for_all(Verify::hashes, [&](const LoadCheckpoint& load_one) { return load_first(line, load_one); });
  QUENCH_CHECK_AS(ErrorCode::nonfinite, !loaded.empty(), "{}; there is no checkpoint to roll back to", verdict.message);
  QUENCH_LOG_WARN("rolled back to step {} ({})", progress.step, loaded.string());
  if (writer) writer->go_back(progress.step);
  saved_step = progress.step;
  metrics.rewind(progress.step);
  validation = read_validation_losses(config.metrics.folder, progress.step, validated_from);
  metrics.event({.step = progress.step, .name = run_events::kRollback, .message = verdict.message});
  open_loader();
  timer = std::make_unique<StepTimer>(progress.step, steps);
  return false;
}

std::string Trainer::Run::first_nonfinite(const std::vector<Batch>& batches) {
  // Before the repetition overwrites the gradients.
  const std::string gradient = first_nonfinite_gradient(*setup.model);
  std::string operand;
  if (!in_tail)  // else no quantized layers
    operand =
        health.first_nonfinite(progress.step + 1, metrics, [&] { (void)step->accumulate(batches, progress.step + 1); });
  const std::string forward =
      first_nonfinite_forward(*setup.model, batches, loss_options(config, setup.config.vocab_size, device));
  const std::string found = !forward.empty() ? forward : !operand.empty() ? operand : gradient;
  for (const std::string& name : distributed::exchange_texts(*ranks->host, found, "first non-finite"))
    if (!name.empty()) return name;
  return {};
}

void Trainer::Run::follow_recipe() {
  const bool tail = in_high_precision(config, progress.step, steps);
  if (tail == in_tail) return;
  in_tail = tail;
  setup.conversion = apply_run_recipe(setup, chosen, device, tail);
  flops = training_flops(setup.config, setup.conversion, config.data.seq_len, trained_adapters(setup),
                         spared_work(*setup.model));
  QUENCH_LOG_INFO(
      "step {}: {}", progress.step + 1,
      tail ? "the recipe does not apply from this step on (recipe.start_step, stop_step, high_precision_tail)"
           : "the recipe applies from this step on");
}

bool Trainer::Run::run_step() {
  follow_recipe();
  distributed::set_error_step(progress.step + 1);
  const StepProfile profile(config, device, progress.step + 1, [this](std::string_view table) { log_lines(table); });
  timer->begin_step();
  const std::vector<Batch> batches = next_step_batches();
  timer->batch_ready();
  health.begin_step(progress.step + 1);
  const bool watched = expert_load != nullptr && log_due(progress.step + 1);
  const bool counted = watched || bias_speed > 0;
  if (counted) expert_load->reset();
  step->watch_experts(counted ? expert_load.get() : nullptr);
  if (writer && step->frees_state_in_accumulate()) writer->before_change();
  const GradientReport report = step->accumulate(batches, progress.step + 1);
  step->watch_experts(nullptr);
  if (counted)
    for (const Tensor& sum : expert_load->sums())
      distributed::all_reduce(*ranks->world, sum, distributed::ReduceOp::sum, "load of the experts");
  health.end_step(progress.step + 1, metrics);
  expert_imbalance.reset();
  if (watched) {
    ExpertMetrics experts{.step = progress.step + 1, .layers = expert_load->read()};
    expert_imbalance = experts.imbalance();
    metrics.experts(std::move(experts));
  }
  const bool finite = std::isfinite(report.loss) && std::isfinite(report.grad_norm);
  const bool targets = report.units > 0;  // all ranks
  const StepVerdict verdict =
      targets ? guard.check(progress.step + 1, report.loss, report.grad_norm, finite ? "" : first_nonfinite(batches))
              : guard.skip_without_targets(progress.step + 1);
  if (!handle_verdict(verdict)) return false;
  const double lr = schedule->lr(progress.step);
  // Bias correction counts applied updates.
  if (verdict.action == StepAction::apply) {
    state_is_consistent = false;
    if (writer) writer->before_change();
    step->apply(lr, progress.step + 1 - guard.skipped_steps());
    if (bias_speed > 0) update_expert_biases(*setup.model, *expert_load, bias_speed);
    state_is_consistent = true;
  }
  const RunProgress before = progress;
  ++progress.step;
  progress.tokens_seen += report.valid_tokens;
  progress.samples = static_cast<std::int64_t>(loader->position());
  if (targets) progress.loss = report.loss;
  const std::int64_t tokens = global_batch_size(config) * config.data.seq_len;
  timer->end_step(tokens, flops.total() * static_cast<double>(tokens) / static_cast<double>(config.parallel.ranks));
  log_step(report, verdict, lr);
  if (first() && progress.step == resumed_step.value_or(0) + 1) {
    start.mark("first step");
    log_lines(start.to_text(progress.step) + "\n");
  }
  if (verdict.action == StepAction::stop) {  // after the final step is logged
    metrics.finish();
    progress = before;
    QUENCH_FAIL(ErrorCode::nonfinite, "{}", verdict.message);
  }
  return true;
}

bool Trainer::Run::log_due(std::int64_t step_number) const {
  return step_number % config.metrics.log_every == 0 || step_number == steps || step_number <= kFirstLoggedSteps;
}

void Trainer::Run::log_step(const GradientReport& report, const StepVerdict& verdict, double lr) {
  Progress bar{.step = progress.step, .total_steps = steps, .loss = progress.loss};
  bar.eta_seconds = timer->eta_seconds();
  bar.tokens_per_second = timer->last_tokens_per_second();
  if (report.units > 0 && (log_due(progress.step) || verdict.nonfinite)) {
    const MemoryStats memory = Allocator::of(device).stats();
    StepMetrics m;
    m.loss = report.loss;
    m.grad_norm = report.grad_norm;
    m.lr = lr;
    m.memory_bytes = static_cast<std::uint64_t>(memory.peak);
    m.memory_reserved_bytes = static_cast<std::uint64_t>(memory.peak_reserved);
    m.memory_capacity_bytes = static_cast<std::uint64_t>(environment.at("device_memory_bytes").as_int());
    m.tokens_seen = progress.tokens_seen;
    m.skipped_steps = guard.skipped_steps();
    m.nonfinite = verdict.nonfinite;
    m.devices = config.parallel.ranks;
    m.expert_imbalance = expert_imbalance;
    if (const Objective* trained = objective->training(); trained != nullptr) {
      const std::vector<std::string> names = trained->metric_names();
      for (std::size_t i = 0; i < names.size() && i < report.metrics.size(); ++i)
        if (std::isfinite(report.metrics[i])) m.objective.emplace_back(names[i], report.metrics[i]);
    }
    timer->fill(m, bf16_peak_flops(environment.at("device_name").as_string()));
    m.float8_share = flops.float8 / flops.total();
    // Emulated GEMMs run in f32.
    measure_ranks(m);
    if (const auto seconds = sol_seconds(flops, environment.at("device_name").as_string());
        seconds && !config.recipe.emulate)
      m.sol_fraction = m.tokens_per_second / static_cast<double>(m.devices) * *seconds;
    metrics.step(m);
  }
  metrics.progress(bar);
}

void Trainer::Run::evaluate(SignalHandlers* signals) {
  // FSDP all-gathers are collective: no rank may stop early.
  samples.draw(*setup.model, progress.step, metrics,
               [&] { return ranks->is_single() && signals != nullptr && signals->stop_signal() != 0; });
  if (!inputs.data.validation) return;
  ValidationOptions options = validation_options();
  options.ranks = ranks.get();
  options.objective = objective->validation();
  EvaluationMetrics evaluation = validate(*setup.model, inputs.data.validation, options);
  evaluation.step = progress.step;
  for (const auto& [name, value] : evaluation.values)
    if (name == "loss") validation.add({progress.step, value});
  improved = best.add(evaluation);
  if (writer) writer->keep(best_step());
  if (best.exhausted())
    metrics.event({.step = progress.step, .name = run_events::kEarlyStop, .message = best.reason()});
  metrics.evaluation(std::move(evaluation));
}

void Trainer::Run::save_before_end(const std::exception& error) {
  if (!writer || !state_is_consistent || progress.step == resumed_step.value_or(0)) return;
  // Collective: only if all ranks have the error at the same place.
  const auto* ending = dynamic_cast<const Error*>(&error);
  if (!ranks->is_single() && (ending == nullptr || ending->code() != ErrorCode::nonfinite)) return;
  try {
    report_saves(writer->wait());
    if (progress.step == saved_step) return;
    step->discard();
    const std::string bad = first_nonfinite_weight(*setup.model);
    QUENCH_CHECK_AS(ErrorCode::nonfinite, bad.empty(), "the {} is not finite", bad);
    save();
    report_saves(writer->wait());
    if (progress.step != saved_step) (void)writer->finish();  // throws its error
    QUENCH_LOG_WARN("the run failed; the state after step {} is saved in {}", progress.step, result.checkpoint);
  } catch (const std::exception& failure) {
    const auto* known = dynamic_cast<const Error*>(&error);
    QUENCH_FAIL(known != nullptr ? known->code() : ErrorCode::failed,
                "{}\nthe state after step {} could not be saved before the end: {}", error.what(), progress.step,
                failure.what());
  }
}

void Trainer::Run::report_kernels() {
  std::string text;
  for (const auto& [name, count] : call_counts())
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, format_count(count));
  if (!text.empty()) QUENCH_LOG_INFO("kernel calls: {}", text);
}

}  // namespace quench
