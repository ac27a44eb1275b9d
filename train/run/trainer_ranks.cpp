// Collective parts; pass-through for a single process.

#include <algorithm>
#include <utility>

#include "core/system/log.h"
#include "core/system/output_folder.h"
#include "core/system/temporary.h"
#include "data/text/tokenize.h"
#include "train/evaluation/calibration_data.h"
#include "train/run/trainer_run.h"
#include "train/run_folder/run_outputs.h"
#include "train/session/adapter_setup.h"

namespace quench {

namespace fs = std::filesystem;

void Trainer::Run::log_lines(std::string_view lines) const {
  if (log) log->text(lines);
}

void Trainer::Run::on_all_ranks(std::string_view what, const std::function<void()>& work) const {
  distributed::together(*ranks, what, work);
}

void Trainer::Run::first_rank_first(std::string_view what, const std::function<void()>& work) const {
  distributed::first_rank_first(*ranks->host, what, work);
}

fs::path Trainer::Run::load_for_all(Verify verify, const std::function<fs::path(const LoadCheckpoint&)>& choose) {
  return load_chosen(
      *ranks->host, verify, [this](CheckpointReader& reader) { load(reader); }, choose);
}

std::unique_ptr<RunLock> Trainer::Run::lock_run() const {
  std::unique_ptr<RunLock> held;
  on_all_ranks("run folder", [&] {
    if (first()) held = std::make_unique<RunLock>(config.run.folder);
  });
  return held;
}

std::unique_ptr<RunLock> Trainer::Run::lock_checkpoints() const {
  std::unique_ptr<RunLock> held;
  on_all_ranks("checkpoint folder", [&] {
    if (!first()) return;
    require_outputs(config);  // again, under the lock
    if (config.export_model) const StagingFolder can_be_made(export_target(config).folder);
    const fs::path& folder = config.checkpoint.folder;
    if (config.checkpoint.enable && resolved_path(folder) != lock->folder()) held = std::make_unique<RunLock>(folder);
  });
  return held;
}

void Trainer::Run::take_metrics_folder() {
  on_all_ranks("metrics folder", [this] {
    if (!first() || !(config.metrics.jsonl || config.metrics.tensorboard)) return;
    const fs::path place = resolved_path(config.metrics.folder);
    const bool is_locked = place == lock->folder() || (checkpoint_lock && place == checkpoint_lock->folder());
    try {
      if (!is_locked) metrics_lock = std::make_unique<RunLock>(config.metrics.folder, "metrics folder");
    } catch (const Error& error) {
      if (error.code() == ErrorCode::locked) throw;
    }
    if (config.metrics.jsonl) take_metrics(config, resumed_step.has_value());
  });
}

RecipeChoice Trainer::Run::choose_recipe() const {
  if (ranks->is_single()) return resolve_auto_recipe(config, device);
  // Rank 0 may measure; its choice is used by all.
  std::string written;
  on_all_ranks("recipe", [&] {
    if (first()) written = to_json(resolve_auto_recipe(config, device)).dump();
  });
  const std::string of_first = distributed::exchange_texts(*ranks->host, written, "recipe").front();
  return recipe_choice_from_json(Json::parse(of_first), "rank 0");
}

void Trainer::Run::load_base_weights() {
  if (!setup.adapters) return;
  try {
    base = fill_adapted(setup, config, *ranks);
  } catch (const std::exception& error) {
    if (log) log->record(fmt::format("error: {}\n", error.what()));  // printed by the caller
    throw;
  }
}

std::unique_ptr<RunObjective> Trainer::Run::make_run_objective() const {
  try {
    const ObjectiveInputs opened{.data = inputs.data,
                                 .identity = inputs.identity,
                                 .checks = first() ? inputs.checks.get() : nullptr,
                                 .samples = static_cast<std::uint64_t>(steps * global_batch_size(config))};
    return make_objective({.config = config, .setup = setup, .ranks = *ranks, .inputs = &opened});
  } catch (const std::exception& error) {
    if (log) log->record(fmt::format("error: {}\n", error.what()));  // printed by the caller
    throw;
  }
}

RunInputs Trainer::Run::open_inputs() {
  RunInputs opened;
  // Rank 0 tokenizes and validates once; others use its output.
  first_rank_first("training data", [&] {
    opened.checks = std::make_unique<ValidationCache>(fs::path(config.data.cache) / "file_checks.json");
    try {
      opened.data = open_data(config, setup.config, opened.checks.get());
    } catch (const TokenizationStopped& stopped) {
      if (log) log->record(fmt::format("{}\n", stopped.what()));  // printed by the caller
      throw;
    }
    opened.identity = run_identity(config, opened.data.tokenizer.get(), *opened.checks);
    if (first()) opened.checks->save();
  });
  opened.smaller_batch = fit_batch(config, *opened.data.train);
  if (!opened.smaller_batch.empty()) chosen = ResolvedConfig(config, chosen.choice().value_or(RecipeChoice()));
  return opened;
}

std::shared_ptr<const CalibrationData> Trainer::Run::read_calibration() const {
  std::shared_ptr<const CalibrationData> data;
  if (!config.export_model) return data;
  on_all_ranks("calibration data", [&] {
    if (!first()) return;
    try {
      data = read_calibration_data(config.export_model->quantization, inputs.data.tokenizer.get(), setup.config,
                                   "the run has no tokenizer (data.tokenizer)");
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("export.calibration: {}", error.what()));
    }
  });
  return data;
}

void Trainer::Run::measure_ranks(StepMetrics& m) {
  if (sharded == nullptr) return;
  const std::int64_t window = progress.step - std::exchange(measured_step, progress.step);
  const double waiting = sharded->take_waiting_seconds() / static_cast<double>(std::max<std::int64_t>(window, 1));
  if (m.step_seconds > 0) m.communication_share = std::min(1.0, waiting / m.step_seconds);
  const MemoryScope scope(MemoryCategory::other);
  const Tensor own = Tensor::zeros({1}, DType::f64), all = Tensor::zeros({ranks->size}, DType::f64);
  *own.data<double>() = std::max(0.0, m.step_seconds - waiting);
  ranks->host->all_gather(own, all, "step times").wait();
  m.rank_seconds.assign(all.data<double>(), all.data<double>() + ranks->size);
}

Trainer::Run::Requests Trainer::Run::agreed_requests(SignalHandlers* signals) const {
  std::array<std::int64_t, 2> asked{};
  if (signals != nullptr) asked = {signals->stop_signal(), signals->take_save_request() ? 1 : 0};
  distributed::all_reduce_numbers(*ranks->host, asked, distributed::ReduceOp::max, "signals");
  return {static_cast<int>(asked[0]), asked[1] != 0};
}

}  // namespace quench
