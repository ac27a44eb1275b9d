#include "train/run/trainer.h"

#include <algorithm>
#include <cstdio>

#include "core/device/determinism.h"
#include "core/memory/memory_limit.h"
#include "core/system/file.h"
#include "core/system/key_error.h"
#include "core/system/log.h"
#include "core/system/output_folder.h"
#include "core/system/signals.h"
#include "core/system/temporary.h"
#include "core/system/threads.h"
#include "train/check/check.h"
#include "train/check/load.h"
#include "train/check/run_tokenizer.h"
#include "train/checkpoint/retention.h"
#include "train/doctor/run_environment.h"
#include "train/metrics/run_files.h"
#include "train/run/first_record.h"
#include "train/run/start_report.h"
#include "train/run/trainer_run.h"
#include "train/run/training_facts.h"
#include "train/run_folder/run_folder.h"
#include "train/run_folder/run_outputs.h"
#include "train/session/adapter_setup.h"
#include "train/session/learned_scales.h"
#include "train/session/optimizer_setup.h"
#include "train/session/parallel_setup.h"
#include "train/step/training_state.h"

namespace quench {

namespace fs = std::filesystem;

namespace {

RunConfig checked(RunConfig config, Device device, const distributed::Ranks& ranks) {
  set_ranks(config, ranks.size);
  require_same_run(ranks, config);
  derive_new_tokens(config);
  set_deterministic(config.training.deterministic);
  require_on_device(config, device);
  limit_memory(device, config.training.memory_limit, "training.memory_limit");
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

Trainer::Run::Run(RunConfig c, Device d, int console, std::shared_ptr<const distributed::Ranks> r)
    : ranks(std::move(r)),
      config(checked(std::move(c), d, *ranks)),
      device(d),
      environment(start.after("device", run_environment(d))),
      lock(lock_run()),
      checkpoint_lock(lock_checkpoints()),
      log(first() ? std::make_unique<RunLog>(fs::path(config.run.folder) / run_files::kLog, console) : nullptr),
      chosen(config, start.after("recipe", choose_recipe())),
      setup(start.after("model", build_model(chosen, d, d, run_sharding(*ranks)))),
      inputs(start.after("data", open_inputs())),
      run_model(make_run_model(config, setup.config, inputs.data.tokenizer, inputs.data.train.get())),
      calibration(read_calibration()),
      samples(config, run_model),
      steps(total_steps(config, *inputs.data.train)),
      guard(guard_options(config.training)),
      health(setup.health, config.metrics.health_every),
      flops(training_flops(setup.config, setup.conversion, config.data.seq_len, trained_adapters(setup),
                           spared_work(*setup.model))),
      best(config.evaluation.early_stopping) {
  run_model.data = training_data_text(config, *inputs.data.train);
  load_base_weights();
  start.mark("weights");
  sharded = share_model(*setup.model, *ranks, config, setup.base.get());
  optimizer = make_optimizer(*setup.model, config, *ranks);
  objective = make_run_objective();
  step =
      std::make_unique<TrainStep>(*setup.model, *optimizer,
                                  TrainStepOptions{.recompute = recompute_level(config.training.activation_checkpoint),
                                                   .loss = loss_options(config, setup.config.vocab_size, device),
                                                   .activations = activation_policy(config, setup.config),
                                                   .state_offload_ratio = config.optimizer.offload_ratio,
                                                   .state_streamed = config.optimizer.offload_streamed,
                                                   .max_norm = config.training.max_norm,
                                                   .sharded = sharded.get(),
                                                   .ranks = ranks.get(),
                                                   .router_terms = router_terms(config, setup.config),
                                                   .objective = objective->training(),
                                                   .scaling = setup.scaling.get()});
  if (setup.config.experts.count > 0)
    expert_load = std::make_unique<nn::ExpertLoad>(setup.config.all_layers(), setup.config.experts.count, device);
  bias_speed = router_bias_speed(config, setup.config);
  plan_steps();
  start.mark("optimizer");
}

void Trainer::Run::plan_steps() {
  steps = total_steps(config, *inputs.data.train, progress.step, progress.samples);
  schedule = std::make_unique<LrSchedule>(lr_schedule_options(config, steps));
}

void Trainer::Run::write_run_files() const {
  const fs::path folder = config.run.folder;
  fs::create_directories(folder);
  remove_stale_temporaries(folder);
  remove_stale_temporaries(config.metrics.folder);
  set_aside_edited(folder / run_files::kConfig);
  // Identifies a run folder: first.
  write_file_atomically(folder / run_files::kEnvironment, environment.dump(2) + "\n");
  write_run_model(config, run_model);
  write_file_atomically(folder / run_files::kConfig, to_json(config).dump(2) + "\n");
  if (chosen.choice()) write_file_atomically(folder / run_files::kRecipe, recipe_section(chosen).dump(2) + "\n");
}

void Trainer::Run::write_continuing_config() const {
  const std::string given = to_json(config).dump(2), text = to_json(continuing_config(config)).dump(2);
  const fs::path file = fs::path(config.run.folder) / run_files::kConfig;
  if (text == given) return;
  set_aside_edited(file);
  write_file_atomically(file, text + "\n");
}

void Trainer::Run::open_logs() {
  MetricsLogOptions options;
  options.folder = config.metrics.folder;
  options.jsonl = config.metrics.jsonl;
  options.tensorboard = config.metrics.tensorboard;
  options.console->progress = config.metrics.progress;
  options.console->print = [this](std::string_view line) { log_lines(line); };
  if (console_log_level() > LogLevel::info) options.console->progress = ProgressDisplay::off;
  options.resume_step = resumed_step;
  options.config = to_json(config).dump(2);
  if (resumed_step) validation = read_validation_losses(config.metrics.folder, *resumed_step, validated_from);
  metrics = MetricsLog(options);
  if (resumed_step && *resumed_step < steps) metrics.event({.step = *resumed_step, .name = run_events::kResume});
}

void Trainer::Run::open_loader() {
  const BatchSplit geometry{config.training.micro_batch_size, global_batch_size(config), ranks->rank,
                            config.parallel.ranks};
  loader = std::make_unique<BatchLoader>(
      inputs.data.train, geometry,
      LoaderOptions{.first_sample = static_cast<std::uint64_t>(progress.samples),
                    .end_sample = end_sample(config, *inputs.data.train).value_or(UINT64_MAX),
                    .device = device,
                    .prefetch = static_cast<std::size_t>(std::max<std::int64_t>(1, config.data.prefetch))});
}

void Trainer::Run::report_saves(const std::vector<SaveReport>& saved) {
  if (saved.empty()) return;
  if (!std::exchange(has_saved, true) && first()) write_continuing_config();
  result.checkpoint = (fs::path(config.checkpoint.folder) / saved.back().path.filename()).string();
  saved_step = saved.back().step;
}

void Trainer::Run::save() {
  if (config.recipe.learned_scales) on_all_ranks("checkpoint", [this] { require_positive_scales(*setup.model); });
  const bool sets_aside = std::exchange(sets_earlier_run_aside, false);
  if (first()) {
    lock->confirm();
    if (checkpoint_lock) checkpoint_lock->confirm();
    if (sets_aside) set_aside_checkpoints(config.checkpoint.folder);
  }
  CheckpointState state = checkpoint_state(config, inputs.identity, progress, guard);
  store_choice(state, chosen);
  store_run_model(state, config, run_model);
  if (setup.adapters) store_base(state, base);
  state.extra.set(std::string(kBestKey), best.state());
  if (validated_from > 0) state.extra.set(std::string(kValidatedFromKey), validated_from);
  if (const auto kept = writer->kept(); kept && kept != best_step()) state.extra.set(std::string(kKeptKey), *kept);
  writer->save(state, tensors_to_save());
}

std::vector<CheckpointTensor> Trainer::Run::tensors_to_save() const {
  // Replicas are equal: replicate rank 0 saves.
  if (ranks->replicate->rank() != 0) return {};
  step->finish_state_copies();
  std::vector<CheckpointTensor> tensors = training_tensors(*setup.model, *optimizer);
  if (setup.scaling && first()) add_scaling(tensors, *setup.scaling);
  return tensors;
}

TrainResult Trainer::Run::train(bool handle_signals) {
  std::optional<SignalHandlers> handlers;
  if (handle_signals) handlers.emplace();  // before output: SIGPIPE must not end the run
  SignalHandlers* const signals = handlers ? &*handlers : nullptr;
  resume_or_fill();
  take_metrics_folder();
  start.mark("weights");
  follow_recipe();  // before the report of kernels
  objective->start({.data = inputs.data, .is_initial = progress.step == 0, .checks = *inputs.checks});
  on_all_ranks("run folder", [this] {
    if (!first()) return;
    write_run_files();
    log_lines(start_report(chosen, setup, inputs.data, run_model, environment, steps));
    if (const std::string warning = validation_warning(config, inputs.data); !warning.empty())
      QUENCH_LOG_WARN("{}", warning);
    if (!inputs.smaller_batch.empty()) QUENCH_LOG_WARN("{}", inputs.smaller_batch);
    if (!resumed_step) log_lines(first_record(config, inputs.data));
    open_logs();
  });
  if (config.checkpoint.enable) {
    CheckpointOptions options;
    options.keep_latest = static_cast<int>(config.checkpoint.keep_latest);
    options.async = config.checkpoint.async;
    options.on_error = config.checkpoint.on_save_error;
    if (!resumed_elsewhere) options.resumed_from = resumed_step;
    // From kept-step-20-...: a step-20 in its place is not of this line.
    std::error_code absent;
    if (options.resumed_from && resumed_path.filename() != step_name(*resumed_step) &&
        !fs::equivalent(resumed_path, fs::path(config.checkpoint.folder) / step_name(*resumed_step), absent))
      --*options.resumed_from;
    if (!resumed_elsewhere) options.kept = kept_on_disk();
    if (!ranks->is_single()) options.peers = ranks->saving;
    const RunLock* held = checkpoint_lock ? checkpoint_lock.get() : lock.get();
    first_rank_first("checkpoint folder",
                     [&] { writer = std::make_unique<CheckpointWriter>(config.checkpoint.folder, held, options); });
    writer->keep(best_step());
    if (const std::int64_t interval = config.checkpoint.interval; interval > 0 && progress.step + interval < steps)
      writer->reserve(tensors_to_save());
  }
  open_loader();
  timer = std::make_unique<StepTimer>(progress.step, steps);
  const auto every = [this](std::int64_t interval) { return interval > 0 && progress.step % interval == 0; };
  saved_step = resumed_step.value_or(-1);
  measured_step = progress.step;
  first_tokens = progress.tokens_seen;
  begun = std::chrono::steady_clock::now();
  if (progress.step >= steps)
    log_lines(finished_message(config, progress, steps) + "\n");
  else if (best.exhausted())
    log_lines(
        fmt::format("the run in {} ended early at step {}: {}; to continue, raise evaluation.early_stopping.patience\n",
                    config.run.folder, progress.step, best.reason()));
  start.mark("run folder");
  Requests asked = agreed_requests(signals);
  while (progress.step < steps && asked.stop_signal == 0 && !best.exhausted()) {
    improved = false;
    try {
      if (!run_step()) {
        asked = agreed_requests(signals);
        continue;
      }
      if (every(config.evaluation.interval) || (progress.step == steps && config.evaluation.interval > 0))
        evaluate(signals);
    } catch (const std::exception& error) {
      save_before_end(error);
      throw;
    }
    asked = agreed_requests(signals);
    if (!writer) continue;
    report_saves(writer->poll());
    const bool keeps = improved && config.checkpoint.keep_best;
    if ((asked.save || keeps || every(config.checkpoint.interval)) && (progress.step < steps || keeps)) save();
  }
  if (sharded) sharded->end_gathers();  // exiting would abort collectives of other ranks
  run_model.training = training_facts(
      config, {.step = progress.step,
               .tokens = progress.tokens_seen,
               .data = run_model.data,
               .validation_loss = validation.last ? std::optional(validation.last->loss) : std::nullopt});
  const bool stopped = asked.stop_signal != 0 && progress.step < steps && !best.exhausted();
  if (writer) report_saves(writer->wait());
  if (writer && saved_step != progress.step && (config.checkpoint.save_final || stopped)) {
    save();
    report_saves(writer->wait());
  }
  if (!stopped && config.export_model) export_run();
  metrics.finish();
  if (first()) report_kernels();
  result.step = progress.step;
  result.loss = progress.loss;
  result.stop_signal = stopped ? asked.stop_signal : 0;
  if (first() && (progress.step > resumed_step.value_or(0) || !result.exported.empty())) {
    const RunEnd summary = end();
    log_lines(end_report(config, summary));
    warn_of_export(summary);
  }
  if (writer) (void)writer->finish();  // failed saves are the run's error, after its other results
  return result;
}

std::optional<std::int64_t> Trainer::Run::best_step() const {
  return config.checkpoint.keep_best && best.best() ? std::optional(best.best()->step) : std::nullopt;
}

std::optional<std::int64_t> Trainer::Run::kept_on_disk() const {
  const std::optional<std::int64_t> step_of_best = best_step();
  if (!kept_best || !step_of_best) return step_of_best;
  // The checkpoint that names another was written while the best one was.
  const CheckpointInfo found =
      inspect_checkpoint(*step_of_best, fs::path(config.checkpoint.folder) / step_name(*step_of_best));
  return found.valid && !found.superseded ? step_of_best : kept_best;
}

std::string Trainer::Run::best_checkpoint() const {
  const std::optional<std::int64_t> kept = writer ? writer->kept() : std::nullopt;
  return kept ? (fs::path(config.checkpoint.folder) / step_name(*kept)).string() : std::string();
}

RunEnd Trainer::Run::end() const {
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  return {.first_step = resumed_step.value_or(0),
          .step = progress.step,
          .steps = steps,
          .stop_signal = result.stop_signal,
          .seconds = took.count(),
          .tokens = progress.tokens_seen - first_tokens,
          .tokens_seen = progress.tokens_seen,
          .loss = progress.loss,
          .validation = validation,
          .ended_early = progress.step < steps && best.exhausted() ? best.reason() : std::string(),
          .best_checkpoint = best_checkpoint(),
          .best_value = config.evaluation.early_stopping.metric == "loss" ? "" : best.describe(),
          .checkpoint = result.checkpoint,
          .exported = result.exported,
          .export_validation = result.export_validation,
          .has_tokenizer = run_model.tokenizer != nullptr,
          .chats = run_model.tokenizer != nullptr &&
                   (!run_model.chat_template.empty() || run_model.tokenizer->chat_template()),
          .ranks = static_cast<int>(config.parallel.ranks)};
}

Trainer::Trainer(RunConfig config, Device device, int console, std::shared_ptr<const distributed::Ranks> ranks)
    : run_(std::make_unique<Run>(std::move(config), device, console, std::move(ranks))) {}
Trainer::~Trainer() = default;
TrainResult Trainer::run(bool handle_signals) {
  try {
    return run_->train(handle_signals);
  } catch (const std::exception& error) {
    if (run_->log) run_->log->record(fmt::format("error: {}\n", error.what()));  // printed by the caller
    throw;
  }
}

}  // namespace quench
