#include "train/record/run_record.h"

#include <filesystem>

#include "core/system/file.h"
#include "core/system/log.h"
#include "core/system/output_folder.h"
#include "core/system/temporary.h"
#include "train/check/load.h"
#include "train/metrics/run_files.h"
#include "train/run_folder/run_folder.h"
#include "train/run_folder/run_outputs.h"

namespace quench {

namespace fs = std::filesystem;

namespace {

// Keys in CheckpointState::extra.
constexpr std::string_view kBestKey = "best_evaluation";
constexpr std::string_view kValidatedFromKey = "validated_from";

std::unique_ptr<RunLock> lock_run(const RunConfig& config, const distributed::Ranks& ranks) {
  std::unique_ptr<RunLock> held;
  distributed::together(ranks, "run folder", [&] {
    if (ranks.is_first()) held = std::make_unique<RunLock>(config.run.folder);
  });
  return held;
}

// Null where the run folder's lock guards the checkpoints: a folder outside may be shared by runs.
std::unique_ptr<RunLock> lock_checkpoints(const RunConfig& config, const RunLock* run,
                                          const distributed::Ranks& ranks) {
  std::unique_ptr<RunLock> held;
  distributed::together(ranks, "checkpoint folder", [&] {
    if (!ranks.is_first()) return;
    require_outputs(config);  // again, under the lock
    if (config.export_model) const StagingFolder can_be_made(export_target(config).folder);
    const fs::path& folder = config.checkpoint.folder;
    if (config.checkpoint.enable && resolved_path(folder) != run->folder()) held = std::make_unique<RunLock>(folder);
  });
  return held;
}

}  // namespace

RunRecord::RunRecord(const RunConfig& config, Json environment, int console, const distributed::Ranks& ranks)
    : config_(config),
      ranks_(ranks),
      environment_(std::move(environment)),
      lock_(lock_run(config, ranks)),
      checkpoint_lock_(lock_checkpoints(config, lock_.get(), ranks)),
      log_(ranks.is_first() ? std::make_unique<RunLog>(fs::path(config.run.folder) / run_files::kLog, console)
                            : nullptr),
      best_(config.evaluation.early_stopping) {}

void RunRecord::log(std::string_view lines) const {
  if (log_) log_->text(lines);
}

void RunRecord::log_to_file(std::string_view lines) const {
  if (log_) log_->record(lines);
}

void RunRecord::take_metrics_folder(bool resumes) {
  distributed::together(ranks_, "metrics folder", [&] {
    if (!ranks_.is_first() || !(config_.metrics.jsonl || config_.metrics.tensorboard)) return;
    const fs::path folder = resolved_path(config_.metrics.folder);
    const bool is_locked = folder == lock_->folder() || (checkpoint_lock_ && folder == checkpoint_lock_->folder());
    try {
      if (!is_locked) metrics_lock_ = std::make_unique<RunLock>(config_.metrics.folder, "metrics folder");
    } catch (const Error& error) {
      if (error.code() == ErrorCode::locked) throw;
    }
    if (config_.metrics.jsonl) take_metrics(config_, resumes);
  });
}

void RunRecord::write_run_files(const ResolvedConfig& chosen, const RunModel& model) const {
  const fs::path folder = config_.run.folder;
  fs::create_directories(folder);
  remove_stale_temporaries(folder);
  remove_stale_temporaries(config_.metrics.folder);
  set_aside_edited(folder / run_files::kConfig);
  // Identifies a run folder: first.
  write_file_atomically(folder / run_files::kEnvironment, environment_.dump(2) + "\n");
  write_run_model(config_, model);
  write_file_atomically(folder / run_files::kConfig, to_json(config_).dump(2) + "\n");
  if (chosen.choice()) write_file_atomically(folder / run_files::kRecipe, recipe_section(chosen).dump(2) + "\n");
}

void RunRecord::write_continuing_config() const {
  if (!ranks_.is_first()) return;
  const std::string given = to_json(config_).dump(2), text = to_json(continuing_config(config_)).dump(2);
  const fs::path file = fs::path(config_.run.folder) / run_files::kConfig;
  if (text == given) return;
  set_aside_edited(file);
  write_file_atomically(file, text + "\n");
}

void RunRecord::open_metrics(std::optional<std::int64_t> resumed_step, std::int64_t steps) {
  MetricsLogOptions options;
  options.folder = config_.metrics.folder;
  options.jsonl = config_.metrics.jsonl;
  options.tensorboard = config_.metrics.tensorboard;
  options.console->progress = config_.metrics.progress;
  options.console->print = [this](std::string_view line) { log(line); };
  if (console_log_level() > LogLevel::info) options.console->progress = ProgressDisplay::off;
  options.resume_step = resumed_step;
  options.config = to_json(config_).dump(2);
  if (resumed_step) validation_ = read_validation_losses(config_.metrics.folder, *resumed_step, validated_from_);
  metrics_ = MetricsLog(options);
  for (auto& sink : added_) metrics_.add(std::move(sink));
  added_.clear();
  if (resumed_step && *resumed_step < steps) metrics_.event({.step = *resumed_step, .name = run_events::kResume});
}

void RunRecord::rewind(std::int64_t step) {
  metrics_.rewind(step);
  validation_ = read_validation_losses(config_.metrics.folder, step, validated_from_);
}

void RunRecord::confirm_locks() const {
  if (lock_) lock_->confirm();
  if (checkpoint_lock_) checkpoint_lock_->confirm();
}

void RunRecord::unlock() noexcept {
  metrics_lock_.reset();
  checkpoint_lock_.reset();
  lock_.reset();
}

const RunLock* RunRecord::checkpoint_folder_lock() const noexcept {
  return checkpoint_lock_ ? checkpoint_lock_.get() : lock_.get();
}

bool RunRecord::add_evaluation(const EvaluationMetrics& evaluation) {
  for (const auto& [name, value] : evaluation.values)
    if (name == "loss") validation_.add({evaluation.step, value});
  return best_.add(evaluation);
}

void RunRecord::store(CheckpointState& state) const {
  state.extra.set(std::string(kBestKey), best_.state());
  if (validated_from_ > 0) state.extra.set(std::string(kValidatedFromKey), validated_from_);
}

void RunRecord::restore(const CheckpointState& state, const RunIdentity& identity, std::int64_t step) {
  best_.restore(state.extra.find(kBestKey));
  const Json* from = state.extra.find(kValidatedFromKey);
  validated_from_ = from != nullptr && from->is_number() ? from->as_int() : 0;
  if (same_validation(state.data, identity)) return;
  validated_from_ = step;
  if (best_.best())
    log(fmt::format("{} has changed since the checkpoint: {} {:.4f} at step {}, its best, no longer counts\n",
                    config_.data.validation_split ? "the held-out part of data.train" : "data.validation",
                    config_.evaluation.early_stopping.metric, best_.best()->value, best_.best()->step));
  best_.restore(nullptr);
}

}  // namespace quench
