#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/allocator.h"
#include "core/call_counter.h"
#include "core/determinism.h"
#include "core/file.h"
#include "core/log.h"
#include "core/threads.h"
#include "data/loader.h"
#include "nn/optim/lr_schedule.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/config/check.h"
#include "train/config/load.h"
#include "train/export_model.h"
#include "train/health_log.h"
#include "train/metrics/metrics_log.h"
#include "train/metrics/peak_flops.h"
#include "train/metrics/run_files.h"
#include "train/metrics/step_timer.h"
#include "train/optimizer_setup.h"
#include "train/probe/auto_recipe.h"
#include "train/run_environment.h"
#include "train/run_folder.h"
#include "train/run_model.h"
#include "train/run_progress.h"
#include "train/signals.h"
#include "train/start_report.h"
#include "train/step_profile.h"
#include "train/train_step.h"
#include "train/training_flops.h"
#include "train/training_state.h"
#include "train/validation.h"

namespace quench {

namespace fs = std::filesystem;

struct Trainer::Run {
  Run(RunConfig c, Device d);
  TrainResult train();

  void resume_or_fill();
  void load(CheckpointReader& reader);
  void write_run_files() const;
  void open_logs();
  void open_loader();
  std::vector<Batch> next_step_batches();
  // False when the step was rolled back: the counters stand at the checkpoint again. Throws nonfinite when the guard
  // says stop.
  bool run_step();
  bool handle_verdict(const StepVerdict& verdict);
  // The name of what was not finite in the step of these batches.
  std::string first_nonfinite(const std::vector<Batch>& batches);
  // The end of a run may be in high precision; a roll-back may leave it again.
  void follow_recipe();
  void log_step(const GradientReport& report, const StepVerdict& verdict, double lr);
  void evaluate();
  void save();
  void report_saves(const std::vector<SaveReport>& saved);
  // Which implementation served ops that have several: a fallback that costs speed must not go unseen.
  static void report_kernels();

  RunConfig config;
  Device device;
  Json environment;
  // Before the choice of a recipe: that reads the folder's checkpoints, and may measure for a minute.
  RunLock lock;
  RecipeChoice choice;  // of recipe.name "auto"
  ModelSetup setup;
  DataSetup data;
  RunModel run_model;
  std::int64_t steps = 0;
  LossGuard guard;
  HealthLog health;
  TrainingFlops flops;  // of a token, under the recipe that applies now
  RunProgress progress;
  std::optional<std::int64_t> resumed_step;
  bool in_tail = false;  // recipe.high_precision_tail
  std::unique_ptr<nn::Optimizer> optimizer;
  std::unique_ptr<TrainStep> step;
  std::unique_ptr<CheckpointWriter> writer;
  std::unique_ptr<BatchLoader> loader;
  std::unique_ptr<LrSchedule> schedule;
  std::unique_ptr<StepTimer> timer;
  MetricsLog metrics;
  TrainResult result;
};

namespace {

RunConfig checked(RunConfig config) {
  set_deterministic(config.training.deterministic);
  TrainerSupport support;
  support.recipes = {std::string(kAutoRecipe)};
  for (const recipes::Recipe& recipe : recipes::recipe_table()) support.recipes.emplace_back(recipe.name);
  support.export_model =
      config.export_model && config.export_model->format == "hf" && config.export_model->scheme.empty();
  require_supported(config, support);
  set_thread_count(static_cast<int>(config.training.threads));
  return config;
}

LossGuardOptions guard_options(const TrainingSection& training) {
  LossGuardOptions options;
  options.on_nonfinite = training.on_nonfinite;
  options.max_consecutive_skips = training.max_consecutive_skips;
  return options;
}

}  // namespace

Trainer::Run::Run(RunConfig c, Device d)
    : config(checked(std::move(c))),
      device(d),
      environment(run_environment(d)),
      lock(config.run.folder),
      choice(resolve_auto_recipe(config, d)),
      setup(build_model(with_choice(config, choice), d)),
      data(open_data(config, setup.config)),
      run_model(make_run_model(config, setup.config, data.tokenizer)),
      steps(total_steps(config, *data.train)),
      guard(guard_options(config.training)),
      health(setup.health, config.metrics.health_every),
      flops(training_flops(setup.config, setup.conversion, config.data.seq_len)) {
  optimizer = make_optimizer(*setup.model, config);
  step =
      std::make_unique<TrainStep>(*setup.model, *optimizer,
                                  TrainStepOptions{.recompute = recompute_level(config.training.activation_checkpoint),
                                                   .loss = loss_options(config, setup.config.vocab_size, device),
                                                   .activations = activation_plan(config, setup.config, device),
                                                   .state_offload_ratio = state_offload_ratio(config, device),
                                                   .state_late_ratio = config.optimizer.return_during_update,
                                                   .max_norm = config.training.max_norm});
  schedule = std::make_unique<LrSchedule>(lr_schedule_options(config, steps));
}

void Trainer::Run::load(CheckpointReader& reader) {
  progress = restore_progress(reader.state(), config, guard);
  restore_training_tensors(reader, *setup.model, *optimizer);
}

void Trainer::Run::resume_or_fill() {
  const fs::path folder = config.checkpoint.folder;
  const Verify verify = config.checkpoint.verify ? Verify::hashes : Verify::none;
  const auto load_any = [this](CheckpointReader& reader) { load(reader); };
  using Mode = ResumeFrom::Mode;
  const ResumeFrom& from = config.checkpoint.resume;
  std::string source;
  if (from.mode == Mode::step || from.mode == Mode::path) {
    const fs::path pinned = from.mode == Mode::path ? fs::path(from.path) : folder / step_name(from.step);
    CheckpointReader reader(pinned, verify);
    load(reader);
    source = pinned.string();
  } else if (from.mode != Mode::never) {
    if (const auto loaded = load_latest(folder, load_any, verify)) source = loaded->path.string();
    QUENCH_CHECK_AS(ErrorCode::bad_config, from.mode != Mode::must || !source.empty(),
                    "checkpoint.resume is \"must\", but {} holds no checkpoint", folder.string());
  }
  if (source.empty()) {
    fill_model(*setup.model, config);
    optimizer->refresh_master();
    return;
  }
  resumed_step = progress.step;
  std::printf("resumed from %s: step %lld, %s tokens seen\n", source.c_str(), static_cast<long long>(progress.step),
              format_count(progress.tokens_seen).c_str());
}

void Trainer::Run::write_run_files() const {
  const fs::path folder = config.run.folder;
  fs::create_directories(folder);
  write_file_atomically(folder / run_files::kConfig, to_json(config).dump(2) + "\n");
  write_file_atomically(folder / run_files::kEnvironment, environment.dump(2) + "\n");
  write_file_atomically(folder / run_files::kSources, run_sources(config).dump(2) + "\n");
  write_run_model(config, run_model);
  if (config.recipe.name == kAutoRecipe)
    write_file_atomically(folder / run_files::kRecipe, recipe_section(with_choice(config, choice)).dump(2) + "\n");
}

void Trainer::Run::open_logs() {
  MetricsLogOptions options;
  options.folder = config.metrics.folder;
  options.jsonl = config.metrics.jsonl;
  options.tensorboard = config.metrics.tensorboard;
  options.console->progress = config.metrics.progress;
  options.resume_step = resumed_step;
  options.config = to_json(config).dump(2);
  metrics = MetricsLog(options);
}

void Trainer::Run::open_loader() {
  const BatchGeometry geometry{config.training.micro_batch_size, global_batch_size(config), 0, 1};
  loader = std::make_unique<BatchLoader>(
      data.train, geometry,
      LoaderOptions{.first_sample = static_cast<std::uint64_t>(progress.samples),
                    .device = device,
                    .prefetch = static_cast<std::size_t>(std::max<std::int64_t>(1, config.data.prefetch))});
}

std::vector<Batch> Trainer::Run::next_step_batches() {
  const std::int64_t count = global_batch_size(config) / config.training.micro_batch_size;
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
  switch (verdict.action) {
    case StepAction::apply: return true;
    case StepAction::skip:
    case StepAction::stop: step->discard(); return true;
    case StepAction::rollback: break;
  }
  step->discard();
  if (writer) report_saves(writer->finish());
  const auto loaded = load_latest(config.checkpoint.folder, [this](CheckpointReader& reader) { load(reader); });
  QUENCH_CHECK_AS(ErrorCode::nonfinite, loaded.has_value(), "{}; there is no checkpoint to roll back to",
                  verdict.message);
  QUENCH_LOG_WARN("rolled back to step {} ({})", progress.step, loaded->path.string());
  metrics.rewind(progress.step);
  open_loader();
  timer = std::make_unique<StepTimer>(progress.step, steps);
  return false;
}

std::string Trainer::Run::first_nonfinite(const std::vector<Batch>& batches) {
  // First, since repeating the step makes the gradients again.
  const std::string gradient = first_nonfinite_gradient(*setup.model);
  if (in_tail) return gradient;  // no layer has operands to look at
  const std::string operand =
      health.first_nonfinite(progress.step + 1, metrics, [&] { (void)step->accumulate(batches, progress.step + 1); });
  return operand.empty() ? gradient : operand;
}

void Trainer::Run::follow_recipe() {
  const bool tail = in_high_precision_tail(config, progress.step, steps);
  if (tail == in_tail) return;
  in_tail = tail;
  setup.conversion = apply_run_recipe(*setup.model, with_choice(config, choice), device, tail, setup.health);
  flops = training_flops(setup.config, setup.conversion, config.data.seq_len);
  QUENCH_LOG_INFO(
      "step {}: {}", progress.step + 1,
      tail ? "the rest of the run is without the recipe (recipe.high_precision_tail)" : "the recipe applies again");
}

bool Trainer::Run::run_step() {
  follow_recipe();
  const StepProfile profile(config, device, progress.step + 1);
  timer->begin_step();
  const std::vector<Batch> batches = next_step_batches();
  timer->batch_ready();
  health.begin_step(progress.step + 1);
  const GradientReport report = step->accumulate(batches, progress.step + 1);
  health.end_step(progress.step + 1, metrics);
  const bool finite = std::isfinite(report.loss) && std::isfinite(report.grad_norm);
  const StepVerdict verdict =
      guard.check(progress.step + 1, report.loss, report.grad_norm, finite ? "" : first_nonfinite(batches));
  if (!handle_verdict(verdict)) return false;
  const double lr = schedule->lr(progress.step);
  // Bias correction counts the updates that were applied.
  if (verdict.action == StepAction::apply) step->apply(lr, progress.step + 1 - guard.skipped_steps());
  ++progress.step;
  progress.tokens_seen += report.valid_tokens;
  progress.samples += global_batch_size(config);
  progress.loss = report.loss;
  const std::int64_t tokens = global_batch_size(config) * config.data.seq_len;
  timer->end_step(tokens, flops.total() * static_cast<double>(tokens));
  log_step(report, verdict, lr);
  if (verdict.action == StepAction::stop) {  // after the log has the step that ended the run
    metrics.finish();
    QUENCH_FAIL(ErrorCode::nonfinite, "{}", verdict.message);
  }
  return true;
}

void Trainer::Run::log_step(const GradientReport& report, const StepVerdict& verdict, double lr) {
  Progress bar{.step = progress.step, .total_steps = steps, .loss = report.loss};
  bar.eta_seconds = timer->eta_seconds();
  const bool due = progress.step % config.metrics.log_every == 0 || progress.step == steps || verdict.nonfinite ||
                   (!resumed_step && progress.step == 1);
  if (due) {
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
    timer->fill(m, bf16_peak_flops(environment.at("device_name").as_string()));
    m.float8_share = flops.float8 / flops.total();
    // Emulated products run in f32, whatever their operands.
    if (const auto seconds = light_seconds(flops, environment.at("device_name").as_string());
        seconds && !config.recipe.emulate)
      m.light_share = m.tokens_per_second / static_cast<double>(m.devices) * *seconds;
    bar.tokens_per_second = m.tokens_per_second;
    metrics.step(m);
  }
  metrics.progress(bar);
}

void Trainer::Run::evaluate() {
  EvaluationMetrics evaluation =
      validate(*setup.model, data.validation,
               {.micro_batch_size = config.evaluation.micro_batch_size.value_or(config.training.micro_batch_size),
                .batches = config.evaluation.steps,
                .loss_chunk_rows = config.training.loss_chunk_size});
  evaluation.step = progress.step;
  metrics.evaluation(std::move(evaluation));
}

void Trainer::Run::report_saves(const std::vector<SaveReport>& saved) {
  if (!saved.empty()) result.checkpoint = saved.back().path.string();
}

void Trainer::Run::report_kernels() {
  std::string text;
  for (const auto& [name, count] : call_counts())
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, format_count(count));
  if (!text.empty()) QUENCH_LOG_INFO("kernel calls: {}", text);
}

void Trainer::Run::save() {
  CheckpointState state = checkpoint_state(config, progress, guard);
  store_choice(state, config, choice);
  store_run_model(state, config, run_model);
  writer->save(state, training_tensors(*setup.model, *optimizer));
}

TrainResult Trainer::Run::train() {
  SignalHandlers signals;  // before the first output: a closed pipe must not end the run
  resume_or_fill();
  follow_recipe();  // before the report says what applies
  write_run_files();
  std::fputs(start_report(config, choice, setup, data, run_model, environment, steps).c_str(), stdout);
  std::fflush(stdout);
  open_logs();
  if (config.checkpoint.enable) {
    CheckpointOptions options;
    options.keep_latest = static_cast<int>(config.checkpoint.keep_latest);
    options.async = config.checkpoint.async;
    options.on_error = config.checkpoint.on_save_error == CheckpointSection::OnSaveError::stop
                           ? CheckpointOptions::OnError::stop
                           : CheckpointOptions::OnError::keep_going;
    options.resumed_from = resumed_step;
    writer = std::make_unique<CheckpointWriter>(config.checkpoint.folder, lock, options);
  }
  open_loader();
  timer = std::make_unique<StepTimer>(progress.step, steps);
  const auto every = [this](std::int64_t interval) { return interval > 0 && progress.step % interval == 0; };
  std::int64_t saved_step = resumed_step.value_or(-1);
  if (progress.step >= steps) std::printf("%s\n", finished_message(config, progress, steps).c_str());
  while (progress.step < steps && signals.stop_signal() == 0) {
    if (!run_step()) continue;
    if (data.validation &&
        (every(config.evaluation.interval) || (progress.step == steps && config.evaluation.interval > 0)))
      evaluate();
    if (!writer) continue;
    report_saves(writer->poll());
    const bool asked = signals.take_save_request();
    if ((asked || every(config.checkpoint.interval)) && progress.step < steps) {
      save();
      saved_step = progress.step;
    }
  }
  metrics.finish();
  const bool stopped = signals.stop_signal() != 0 && progress.step < steps;
  if (writer && saved_step != progress.step && (config.checkpoint.save_final || stopped)) save();
  if (writer) report_saves(writer->finish());
  if (!stopped && config.export_model) {
    export_model(*setup.model, config, run_model, config.export_model->folder);
    result.exported = config.export_model->folder;
  }
  report_kernels();
  result.step = progress.step;
  result.loss = progress.loss;
  result.stop_signal = stopped ? signals.stop_signal() : 0;
  return result;
}

Trainer::Trainer(RunConfig config, Device device) : run_(std::make_unique<Run>(std::move(config), device)) {}
Trainer::~Trainer() = default;
TrainResult Trainer::run() {
  return run_->train();
}

}  // namespace quench
