// Steps and evaluations of a run.

#include <algorithm>
#include <array>
#include <cmath>

#include "core/memory/allocator.h"
#include "core/system/log.h"
#include "distributed/launcher/error_file.h"
#include "train/check/check.h"
#include "train/evaluation/validation.h"
#include "train/metrics/peak_flops.h"
#include "train/run/step_profile.h"
#include "train/run/trainer_run.h"
#include "train/step/nonfinite_origin.h"

namespace quench {

namespace fs = std::filesystem;

Trainer::Run::Requests Trainer::Run::agreed_requests(SignalHandlers* signals) const {
  std::array<std::int64_t, 2> numbers{};
  if (signals != nullptr) numbers = {signals->stop_signal(), signals->take_save_request() ? 1 : 0};
  distributed::all_reduce_numbers(*ranks->host, numbers, distributed::ReduceOp::max, "signals");
  return {static_cast<int>(numbers[0]), numbers[1] != 0};
}

bool Trainer::Run::advance(SignalHandlers* signals) {
  if (is_over() || asked.stop_signal != 0) return false;
  const auto is_due = [this](std::int64_t interval) { return interval > 0 && progress.step % interval == 0; };
  bool improved = false;
  try {
    if (!run_step()) {
      asked = agreed_requests(signals);
      return true;
    }
    if (is_due(config.evaluation.interval) || (progress.step == steps && config.evaluation.interval > 0))
      improved = evaluate(signals);
  } catch (const std::exception& error) {
    const Objective* trained = session->objective()->training();
    saver.save_before_end(error, trained != nullptr && trained->failed_together());
    throw;
  }
  asked = agreed_requests(signals);
  if (!saver.is_open()) return true;
  saver.poll();
  const bool keeps = improved && config.checkpoint.keep_best;
  if ((asked.save || keeps || is_due(config.checkpoint.interval)) && (progress.step < steps || keeps)) saver.save();
  return true;
}

std::vector<Batch> Trainer::Run::next_step_batches() {
  const bool reads_data = progress.step % steps_of_data(config) == 0;
  const std::int64_t count = reads_data ? accumulation_steps(config, config.parallel.data_ranks()) : 0;
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < count; ++i) {
    std::optional<Batch> batch = loader->next();
    QUENCH_CHECK_AS(ErrorCode::failed, batch.has_value(), "the training data ended at step {}", progress.step);
    batches.push_back(std::move(*batch));
  }
  if (Objective* trained = session->objective()->training(); trained != nullptr)
    batches = trained->step_batches(std::move(batches), progress.step + 1);
  return batches;
}

bool Trainer::Run::handle_verdict(const StepVerdict& verdict) {
  const std::int64_t step = progress.step + 1;
  MetricsLog& metrics = record.metrics();
  if (!verdict.message.empty()) QUENCH_LOG_WARN("{}", verdict.message);
  if (verdict.spike) metrics.event({.step = step, .name = run_events::kSpike, .message = verdict.message});
  switch (verdict.action) {
    case StepAction::apply: return true;
    case StepAction::skip:
      metrics.event({.step = step, .name = run_events::kSkip, .message = verdict.message});
      saver.before_change();  // a save may still read amax histories
      session->step()->skip();
      return true;
    case StepAction::stop: session->step()->discard(); return true;
    case StepAction::rollback: break;
  }
  session->step()->discard();
  go_back(verdict.message);
  return false;
}

void Trainer::Run::go_back(const std::string& reason) {
  saver.go_back(reason);
  plan_steps();
  record.rewind(progress.step);
  record.metrics().event({.step = progress.step, .name = run_events::kRollback, .message = reason});
  open_loader();
}

std::string Trainer::Run::first_nonfinite(const std::vector<Batch>& batches) {
  const std::int64_t step = progress.step + 1;
  // Before the repetition overwrites the gradients.
  const std::string gradient = first_nonfinite_gradient(session->model());
  std::string operand;
  // Else no quantized layers; a pipeline stage may have none.
  if (!session->is_in_high_precision() && session->stages() == nullptr && !session->step()->updates_in_backward())
    operand = health.first_nonfinite(step, record.metrics(), [&] { (void)session->step()->accumulate(batches, step); });
  const std::string forward = first_nonfinite_forward(session->model(), batches, session->loss());
  const std::string found = !forward.empty() ? forward : !operand.empty() ? operand : gradient;
  for (const std::string& name : distributed::exchange_texts(*ranks->host, found, "first non-finite"))
    if (!name.empty()) return name;
  return {};
}

void Trainer::Run::follow_recipe() {
  if (!session->follow_recipe(progress.step, steps)) return;
  flops = training_flops(session->setup(), config.data.seq_len);
  QUENCH_LOG_INFO(
      "step {}: {}", progress.step + 1,
      session->is_in_high_precision()
          ? "the recipe does not apply from this step on (recipe.start_step, stop_step, high_precision_tail)"
          : "the recipe applies from this step on");
}

bool Trainer::Run::run_step() {
  follow_recipe();
  const std::int64_t number = progress.step + 1;
  TrainStep& step = *session->step();
  distributed::set_error_step(number);
  const StepProfile profile(config, device, number, [this](std::string_view table) { record.log(table); });
  timer->begin_step();
  const std::vector<Batch> batches = next_step_batches();
  timer->batch_ready();
  health.begin_step(number);
  experts->begin_step(log_due(number));
  if (step.frees_state_in_accumulate()) saver.before_change();
  // Bias correction counts applied updates.
  const StepUpdate update{.lr = schedule->lr(progress.step), .number = number - guard.skipped_steps()};
  if (step.updates_in_backward()) saver.begin_update();
  const GradientReport report = step.accumulate(batches, number, update);
  std::optional<ExpertMetrics> loads = experts->end_step(number);
  health.end_step(number, record.metrics());
  std::optional<double> imbalance;
  if (loads) {
    imbalance = loads->imbalance();
    record.metrics().experts(std::move(*loads));
  }
  const bool finite = std::isfinite(report.loss) && std::isfinite(report.grad_norm);
  const bool targets = report.units > 0;  // all ranks
  const StepVerdict verdict =
      targets ? guard.check(number, report.loss, report.grad_norm, finite ? "" : first_nonfinite(batches))
              : guard.skip_without_targets(number);
  if (!handle_verdict(verdict)) return false;
  if (verdict.action == StepAction::apply) {
    saver.begin_update();
    step.apply(update.lr, update.number);
    experts->update_biases();
  }
  // Without targets nothing was changed; a step that stops the run may have updated a part of the model.
  if (verdict.action == StepAction::apply || !targets) saver.end_update();
  const RunProgress before = progress;
  progress.step = number;
  progress.tokens_seen += report.valid_tokens;
  progress.samples = static_cast<std::int64_t>(loader->position());
  if (targets) progress.loss = report.loss;
  const std::int64_t tokens = global_batch_size(config) * config.data.seq_len;
  timer->end_step(tokens, flops.total() * static_cast<double>(tokens) / static_cast<double>(config.parallel.ranks));
  log_step(report, verdict, update.lr, imbalance);
  log_sampled_texts();
  if (first() && progress.step == saver.first_step() + 1) {
    start.mark("first step");
    record.log(start.to_text(progress.step) + "\n");
  }
  if (verdict.action == StepAction::stop) {  // after the final step is logged
    record.metrics().finish();
    progress = before;
    QUENCH_FAIL(ErrorCode::nonfinite, "{}", verdict.message);
  }
  return true;
}

bool Trainer::Run::log_due(std::int64_t step_number) const {
  return step_number % config.metrics.log_every == 0 || step_number == steps || step_number <= kFirstLoggedSteps;
}

void Trainer::Run::log_step(const GradientReport& report, const StepVerdict& verdict, double lr,
                            const std::optional<double>& expert_imbalance) {
  Progress bar{.step = progress.step, .total_steps = steps, .loss = progress.loss};
  bar.eta_seconds = timer->eta_seconds();
  bar.tokens_per_second = timer->last_tokens_per_second();
  if (report.units > 0 && (log_due(progress.step) || verdict.nonfinite)) {
    StepMetrics metrics = step_metrics(report, verdict, lr);
    metrics.expert_imbalance = expert_imbalance;
    record.metrics().step(std::move(metrics));
  }
  record.metrics().progress(bar);
}

void Trainer::Run::log_sampled_texts() {
  const Objective* trained = session->objective()->training();
  if (trained == nullptr || !first() || !log_due(progress.step)) return;
  for (SampledText& sampled : trained->sampled_texts())
    record.metrics().sample({.step = progress.step,
                             .prompt = std::move(sampled.prompt),
                             .text = std::move(sampled.text),
                             .tokens = std::move(sampled.tokens),
                             .figures = std::move(sampled.figures)});
}

StepMetrics Trainer::Run::step_metrics(const GradientReport& report, const StepVerdict& verdict, double lr) {
  const MemoryStats memory = Allocator::of(device).stats();
  const std::string& device_name = record.environment().at("device_name").as_string();
  StepMetrics m;
  m.loss = report.loss;
  m.grad_norm = report.grad_norm;
  m.lr = lr;
  m.memory_bytes = static_cast<std::uint64_t>(memory.peak);
  m.memory_reserved_bytes = static_cast<std::uint64_t>(memory.peak_reserved);
  m.memory_capacity_bytes = static_cast<std::uint64_t>(record.environment().at("device_memory_bytes").as_int());
  m.tokens_seen = progress.tokens_seen;
  m.skipped_steps = guard.skipped_steps();
  m.nonfinite = verdict.nonfinite;
  m.devices = config.parallel.ranks;
  if (const Objective* trained = session->objective()->training(); trained != nullptr) {
    const std::vector<std::string> names = trained->metric_names();
    for (std::size_t i = 0; i < names.size() && i < report.metrics.size(); ++i)
      if (std::isfinite(report.metrics[i])) m.objective.emplace_back(names[i], report.metrics[i]);
  }
  timer->fill(m, bf16_peak_flops(device_name));
  m.float8_share = flops.float8 / flops.total();
  measure_ranks(m);
  // Emulated GEMMs run in f32.
  if (const auto seconds = sol_seconds(flops, device_name); seconds && !config.recipe.emulate)
    m.sol_fraction = m.tokens_per_second / static_cast<double>(m.devices) * *seconds;
  return m;
}

void Trainer::Run::measure_ranks(StepMetrics& m) {
  if (session->sharded() == nullptr) return;
  const std::int64_t window = progress.step - std::exchange(measured_step, progress.step);
  const double waiting =
      session->sharded()->take_waiting_seconds() / static_cast<double>(std::max<std::int64_t>(window, 1));
  if (m.step_seconds > 0) m.communication_share = std::min(1.0, waiting / m.step_seconds);
  double idle = 0;
  if (distributed::StageExchange* stages = session->stages()) {
    idle = stages->take_waiting_seconds() / static_cast<double>(std::max<std::int64_t>(window, 1));
    std::array<double, 1> share{m.step_seconds > 0 ? std::min(1.0, idle / m.step_seconds) : 0.0};
    distributed::all_reduce_numbers(*ranks->host, share, distributed::ReduceOp::sum, "bubble");
    m.bubble = share[0] / ranks->size;
  }
  const MemoryScope scope(MemoryCategory::other);
  const Tensor own = Tensor::zeros({1}, DType::f64), all = Tensor::zeros({ranks->size}, DType::f64);
  *own.data<double>() = std::max(0.0, m.step_seconds - waiting - idle);
  ranks->host->all_gather(own, all, "step times").wait();
  m.rank_seconds.assign(all.data<double>(), all.data<double>() + ranks->size);
}

bool Trainer::Run::evaluate(SignalHandlers* signals) {
  // FSDP all-gathers are collective: no rank may stop early.
  samples.draw(session->model(), progress.step, record.metrics(),
               [&] { return ranks->is_single() && signals != nullptr && signals->stop_signal() != 0; });
  if (!inputs.data.validation) return false;
  ValidationOptions options = validation_options(config);
  options.ranks = ranks.get();
  options.stages = session->stages();
  options.objective = session->objective()->validation();
  EvaluationMetrics evaluation = validate(session->model(), inputs.data.validation, options);
  if (session->stages() != nullptr) (void)session->stages()->take_waiting_seconds();  // none of a step
  evaluation.step = progress.step;
  const bool is_best = record.add_evaluation(evaluation);
  saver.keep_best();
  if (record.best().exhausted())
    record.metrics().event({.step = progress.step, .name = run_events::kEarlyStop, .message = record.best().reason()});
  record.metrics().evaluation(std::move(evaluation));
  return is_best;
}

}  // namespace quench
