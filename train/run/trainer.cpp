#include "train/run/trainer.h"

#include <algorithm>

#include "core/device/call_counter.h"
#include "core/device/determinism.h"
#include "core/memory/memory_limit.h"
#include "core/system/log.h"
#include "core/system/threads.h"
#include "data/text/tokenize.h"
#include "train/check/check.h"
#include "train/doctor/run_environment.h"
#include "train/probe/auto_recipe.h"
#include "train/remote/remote_checkpoints.h"
#include "train/run/first_record.h"
#include "train/run/start_report.h"
#include "train/run/trainer_run.h"
#include "train/run/training_facts.h"
#include "train/session/parallel_setup.h"

namespace quench {

namespace fs = std::filesystem;

namespace {

RunConfig checked(RunConfig config, Device device, const distributed::Ranks& ranks) {
  set_ranks(config, ranks.size);
  require_same_run(ranks, config);
  derive_new_tokens(config);
  set_deterministic(config.training.deterministic);
  set_batch_invariant(config.training.batch_invariant);
  require_on_device(config, device);
  require_remote(config.checkpoint, ranks);
  limit_memory(device, config.training.memory_limit, "training.memory_limit");
  set_thread_count(static_cast<int>(config.training.threads));
  return config;
}

LossGuardOptions guard_options(const RunConfig& config) {
  return {.on_nonfinite = config.training.on_nonfinite,
          .max_consecutive_skips = config.training.max_consecutive_skips,
          .updates_in_backward = config.optimizer.update_in_backward};
}

// Logs the implementation of ops that have several, so that slow fallbacks are visible.
void report_kernels() {
  std::string text;
  for (const auto& [name, count] : call_counts())
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, format_count(count));
  if (!text.empty()) QUENCH_LOG_INFO("kernel calls: {}", text);
}

}  // namespace

Trainer::Run::Run(RunConfig c, Device d, int console, std::shared_ptr<const distributed::Ranks> r)
    : ranks(std::move(r)),
      config(checked(std::move(c), d, *ranks)),
      device(d),
      record(config, start.after("device", run_environment(d)), console, *ranks),
      session(start.after("model", std::make_unique<RunSession>(start.after("recipe", choose_recipe()),
                                                                RunSessionOptions{.device = d, .ranks = ranks}))),
      inputs(start.after("data", open_inputs())),
      run_model(make_run_model(config, session->model_config(), inputs.data.tokenizer, inputs.data.train.get())),
      exporter(*session, record, inputs.data, run_model),
      samples(config, run_model),
      steps(total_steps(config, *inputs.data.train)),
      guard(guard_options(config)),
      health(session->setup().health, config.metrics.health_every),
      flops(training_flops(session->setup(), config.data.seq_len)),
      saver({.config = config,
             .identity = inputs.identity,
             .model = run_model,
             .session = *session,
             .record = record,
             .progress = progress,
             .guard = guard}) {
  run_model.data = training_data_text(config, *inputs.data.train);
  make_step();
}

ResolvedConfig Trainer::Run::choose_recipe() const {
  if (ranks->is_single()) return ResolvedConfig(config, resolve_auto_recipe(config, device));
  // Rank 0 may measure; its choice is used by all.
  std::string written;
  distributed::together(*ranks, "recipe", [&] {
    if (first()) written = to_json(resolve_auto_recipe(config, device)).dump();
  });
  const std::string chosen = distributed::exchange_texts(*ranks->host, written, "recipe").front();
  return ResolvedConfig(config, recipe_choice_from_json(Json::parse(chosen), "rank 0"));
}

RunInputs Trainer::Run::open_inputs() {
  RunInputs opened;
  // Rank 0 tokenizes and validates once; others use its output.
  distributed::first_rank_first(*ranks->host, "training data", [&] {
    opened.checks = std::make_unique<ValidationCache>(fs::path(config.data.cache) / "file_checks.json");
    try {
      opened.data = open_data(config, session->model_config(), opened.checks.get());
    } catch (const TokenizationStopped& stopped) {
      record.log_to_file(fmt::format("{}\n", stopped.what()));  // printed by the caller
      throw;
    }
    opened.identity = run_identity(config, opened.data.tokenizer.get(), *opened.checks);
    if (first()) opened.checks->save();
  });
  opened.smaller_batch = fit_batch(config, *opened.data.train);
  if (!opened.smaller_batch.empty()) session->set_batch(config);
  return opened;
}

void Trainer::Run::make_step() {
  record.logging_errors([this] { session->load_base(); });
  start.mark("weights");
  session->share();
  session->add_optimizer();
  const ObjectiveInputs opened{.data = inputs.data,
                               .identity = inputs.identity,
                               .checks = first() ? inputs.checks.get() : nullptr,
                               .samples = static_cast<std::uint64_t>(steps * global_batch_size(config))};
  record.logging_errors([&] { session->add_objective(&opened); });
  session->add_step();
  experts = std::make_unique<ExpertWatch>(*session);
  plan_steps();
  start.mark("optimizer");
}

void Trainer::Run::plan_steps() {
  steps = total_steps(config, *inputs.data.train, progress.step, progress.samples);
  schedule = std::make_unique<LrSchedule>(lr_schedule_options(config, steps));
}

void Trainer::Run::open_loader() {
  const BatchSplit geometry{config.training.micro_batch_size, global_batch_size(config), ranks->data_rank(),
                            config.parallel.data_ranks()};
  loader = std::make_unique<BatchLoader>(
      inputs.data.train, geometry,
      LoaderOptions{.first_sample = static_cast<std::uint64_t>(progress.samples),
                    .end_sample = end_sample(config, *inputs.data.train).value_or(UINT64_MAX),
                    .device = device,
                    .prefetch = static_cast<std::size_t>(std::max<std::int64_t>(1, config.data.prefetch)),
                    .part = sequence_part(*ranks)});
  timer = std::make_unique<StepTimer>(progress.step, steps);
}

void Trainer::Run::begin(SignalHandlers* signals) {
  saver.resume_or_fill();
  plan_steps();
  const bool resumes = saver.resumed_step().has_value();
  record.take_metrics_folder(resumes);
  start.mark("weights");
  follow_recipe();  // before the report of kernels
  session->objective()->start({.data = inputs.data, .is_initial = progress.step == 0, .checks = *inputs.checks});
  distributed::together(*ranks, "run folder", [&] {
    if (!first()) return;
    record.write_run_files(session->resolved(), run_model);
    record.log(start_report(*session, inputs.data, run_model, record.environment(), steps));
    if (const std::string warning = validation_warning(config, inputs.data); !warning.empty())
      QUENCH_LOG_WARN("{}", warning);
    if (!inputs.smaller_batch.empty()) QUENCH_LOG_WARN("{}", inputs.smaller_batch);
    if (!resumes) record.log(first_record(config, inputs.data));
    record.open_metrics(saver.resumed_step(), steps);
  });
  saver.open(steps);
  open_loader();
  measured_step = progress.step;
  first_tokens = progress.tokens_seen;
  begun = std::chrono::steady_clock::now();
  if (progress.step >= steps)
    record.log(finished_message(config, progress, steps) + "\n");
  else if (record.best().exhausted())
    record.log(
        fmt::format("the run in {} ended early at step {}: {}; to continue, raise evaluation.early_stopping.patience\n",
                    config.run.folder, progress.step, record.best().reason()));
  start.mark("run folder");
  asked = agreed_requests(signals);
}

TrainResult Trainer::Run::end(int stop_signal) {
  if (session->sharded()) session->sharded()->end_gathers();  // exiting would abort collectives of other ranks
  const auto& validated = record.validation().last;
  run_model.training =
      training_facts(config, {.step = progress.step,
                              .tokens = progress.tokens_seen,
                              .data = run_model.data,
                              .validation_loss = validated ? std::optional(validated->loss) : std::nullopt});
  saver.wait();
  if (config.checkpoint.save_final || !is_over()) saver.save_last();
  if (is_over() && config.export_model) exporter.write(progress.step, saver.first_step());
  record.metrics().finish();
  if (first()) report_end(stop_signal);
  saver.finish();  // failed saves are the run's error, after its other results
  record.unlock();
  return {.step = progress.step,
          .loss = progress.loss,
          .stop_signal = stop_signal,
          .checkpoint = saver.newest(),
          .exported = exporter.folder(),
          .export_validation = exporter.validation()};
}

void Trainer::Run::report_end(int stop_signal) const {
  report_kernels();
  if (progress.step == saver.first_step() && exporter.folder().empty()) return;
  const RunEnd end = summary(stop_signal);
  record.log(end_report(config, end));
  warn_of_export(config, end);
}

RunEnd Trainer::Run::summary(int stop_signal) const {
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  const BestEvaluation& best = record.best();
  return {.first_step = saver.first_step(),
          .step = progress.step,
          .steps = steps,
          .stop_signal = stop_signal,
          .seconds = took.count(),
          .tokens = progress.tokens_seen - first_tokens,
          .tokens_seen = progress.tokens_seen,
          .loss = progress.loss,
          .validation = record.validation(),
          .ended_early = progress.step < steps && best.exhausted() ? best.reason() : std::string(),
          .best_checkpoint = saver.best_checkpoint(),
          .best_value = config.evaluation.early_stopping.metric == "loss" ? "" : best.describe(),
          .checkpoint = saver.newest(),
          .exported = exporter.folder(),
          .export_validation = exporter.validation(),
          .has_tokenizer = run_model.tokenizer != nullptr,
          .chats = run_model.tokenizer != nullptr &&
                   (!run_model.chat_template.empty() || run_model.tokenizer->chat_template()),
          .ranks = static_cast<int>(config.parallel.ranks)};
}

TrainResult Trainer::Run::train(bool handle_signals) {
  std::optional<SignalHandlers> handlers;
  if (handle_signals) handlers.emplace();  // before output: SIGPIPE must not end the run
  SignalHandlers* const signals = handlers ? &*handlers : nullptr;
  begin(signals);
  while (advance(signals)) {
  }
  return end(is_over() ? 0 : asked.stop_signal);
}

Json to_json(const TrainResult& result) {
  Json json = Json::object();
  json.set("step", result.step);
  json.set("loss", result.loss);
  json.set("checkpoint", result.checkpoint);
  json.set("exported", result.exported);
  if (const auto& losses = result.export_validation)
    json.set("export_validation", Json::Object{{"trained_loss", losses->trained},
                                               {"exported_loss", losses->kept.loss},
                                               {"method", losses->kept.method}});
  return json;
}

Trainer::Trainer(RunConfig config, Device device, int console, std::shared_ptr<const distributed::Ranks> ranks)
    : run_(std::make_unique<Run>(std::move(config), device, console, std::move(ranks))) {}
Trainer::~Trainer() = default;
TrainResult Trainer::run(bool handle_signals) {
  return run_->record.logging_errors([&] { return run_->train(handle_signals); });
}
void Trainer::add_metrics(std::unique_ptr<MetricsSink> sink) {
  run_->record.add_metrics(std::move(sink));
}
void Trainer::begin() {
  run_->record.logging_errors([this] { run_->begin(nullptr); });
}
bool Trainer::step() {
  return run_->record.logging_errors([this] { return run_->advance(nullptr); });
}
TrainResult Trainer::end() {
  return run_->record.logging_errors([this] { return run_->end(0); });
}
RunSession& Trainer::session() noexcept {
  return *run_->session;
}
const RunProgress& Trainer::progress() const noexcept {
  return run_->progress;
}
std::int64_t Trainer::planned_steps() const noexcept {
  return run_->steps;
}
const RunModel& Trainer::run_model() const noexcept {
  return run_->run_model;
}
void Trainer::log_evaluation(EvaluationMetrics metrics) {
  run_->record.metrics().evaluation(std::move(metrics));
}

}  // namespace quench
