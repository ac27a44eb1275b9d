#include "train/run/run_saver.h"

#include <utility>

#include "core/system/key_error.h"
#include "core/system/log.h"
#include "train/checkpoint/retention.h"
#include "train/probe/auto_recipe.h"
#include "train/run_folder/run_outputs.h"
#include "train/session/adapter_setup.h"
#include "train/session/learned_scales.h"
#include "train/step/nonfinite_origin.h"
#include "train/step/training_state.h"

namespace quench {

namespace fs = std::filesystem;

void RunSaver::open(std::int64_t steps) {
  const CheckpointSection& section = parts_.config.checkpoint;
  saved_step_ = resumed_step_.value_or(-1);
  if (!section.enable) return;
  CheckpointOptions options;
  options.keep_latest = static_cast<int>(section.keep_latest);
  options.async = section.async;
  options.on_error = section.on_save_error;
  if (!resumed_elsewhere_) options.resumed_from = resumed_step_;
  // From kept-step-20-...: a step-20 in its place is not of this line.
  std::error_code absent;
  if (options.resumed_from && resumed_path_.filename() != step_name(*resumed_step_) &&
      !fs::equivalent(resumed_path_, folder() / step_name(*resumed_step_), absent))
    --*options.resumed_from;
  if (!resumed_elsewhere_) options.kept = kept_on_disk();
  if (remote_) options.in_use = [this] { return remote_->in_use(); };
  const distributed::Ranks& ranks = parts_.session.ranks();
  if (!ranks.is_single()) options.peers = ranks.saving;
  distributed::first_rank_first(*ranks.host, "checkpoint folder", [&] {
    writer_ = std::make_unique<CheckpointWriter>(folder(), parts_.record.checkpoint_folder_lock(), options);
  });
  writer_->keep(best_step());
  open_remote();
  if (section.interval > 0 && parts_.progress.step + section.interval < steps) writer_->reserve(tensors_to_save());
}

void RunSaver::open_remote() {
  if (!remote_) return;
  remote_->start();
  if (resumed_step_ && !resumed_elsewhere_ && resumed_path_.filename() == step_name(*resumed_step_))
    remote_->add({*resumed_step_, folder() / step_name(*resumed_step_), writer_->line(), kept_steps()});
}

std::vector<std::int64_t> RunSaver::kept_steps() const {
  std::vector<std::int64_t> steps;
  for (const auto& step : {best_step(), writer_->kept(), resumed_step_})
    if (step) steps.push_back(*step);
  return steps;
}

void RunSaver::save() {
  RunSession& session = parts_.session;
  if (parts_.config.recipe.learned_scales)
    distributed::together(session.ranks(), "checkpoint", [&] { require_positive_scales(session.model()); });
  const bool sets_aside = std::exchange(sets_earlier_run_aside_, false);
  parts_.record.confirm_locks();
  if (session.ranks().is_first() && sets_aside) set_aside_checkpoints(folder());
  CheckpointState state = checkpoint_state(parts_.config, parts_.identity, parts_.progress, parts_.guard);
  store_choice(state, session.resolved());
  store_run_model(state, parts_.config, parts_.model);
  if (session.setup().adapters) store_base(state, session.base_hash());
  parts_.record.store(state);
  if (const auto kept = writer_->kept(); kept && kept != best_step()) state.extra.set(std::string(kKeptKey), *kept);
  writer_->save(state, tensors_to_save());
}

std::vector<CheckpointTensor> RunSaver::tensors_to_save() const {
  const RunSession& session = parts_.session;
  const Objective* trained = session.objective()->training();
  const std::string state = trained == nullptr ? std::string() : trained->state(parts_.progress.step);
  // Replicas are equal: replicate rank 0 saves.
  if (session.ranks().replicate->rank() != 0) return {};
  session.step()->finish_state_copies();
  std::vector<CheckpointTensor> tensors = training_tensors(session.model(), *session.optimizer());
  const auto& scaling = session.setup().scaling;
  if (scaling && session.ranks().is_first()) add_scaling(tensors, *scaling);
  if (session.ranks().is_first()) add_objective_state(tensors, state);
  return tensors;
}

void RunSaver::report_saves(const std::vector<SaveReport>& saved) {
  if (saved.empty()) return;
  if (!std::exchange(has_saved_, true)) parts_.record.write_continuing_config();
  if (remote_)
    for (const SaveReport& report : saved)
      remote_->add({report.step, folder() / step_name(report.step), writer_->line(), kept_steps()});
  newest_ = (folder() / saved.back().path.filename()).string();
  saved_step_ = saved.back().step;
}

void RunSaver::wait() {
  if (writer_) report_saves(writer_->wait());
}

void RunSaver::poll() {
  if (writer_) report_saves(writer_->poll());
}

void RunSaver::save_last() {
  if (!writer_ || saved_step_ == parts_.progress.step) return;
  save();
  wait();
}

void RunSaver::finish() {
  if (!writer_) return;
  std::exception_ptr missing;  // in the storage
  try {
    if (remote_) distributed::together(parts_.session.ranks(), "remote checkpoint", [&] { remote_->finish(); });
  } catch (const Error&) {
    missing = std::current_exception();
  }
  (void)writer_->finish();
  if (remote_) writer_->delete_unused();
  if (missing) std::rethrow_exception(missing);
}

void RunSaver::save_before_end(const std::exception& error, bool is_shared) {
  const std::int64_t step = parts_.progress.step;
  if (!writer_ || !is_consistent_ || step == first_step()) return;
  // Collective: only if all ranks have the error at the same place.
  const auto* known = dynamic_cast<const Error*>(&error);
  if (!parts_.session.ranks().is_single() && !is_shared && (known == nullptr || known->code() != ErrorCode::nonfinite))
    return;
  try {
    wait();
    if (step == saved_step_) return;
    parts_.session.step()->discard();
    const std::string bad = first_nonfinite_weight(parts_.session.model());
    QUENCH_CHECK_AS(ErrorCode::nonfinite, bad.empty(), "the {} is not finite", bad);
    save();
    wait();
    if (step != saved_step_) finish();  // throws its error
    QUENCH_LOG_WARN("the run failed; the state after step {} is saved in {}", step, newest_);
    if (remote_) remote_->finish();
  } catch (const std::exception& failure) {
    QUENCH_FAIL(known != nullptr ? known->code() : ErrorCode::failed,
                "{}\nthe state after step {} could not be saved before the end: {}", error.what(), step,
                failure.what());
  }
}

void RunSaver::begin_update() {
  is_consistent_ = false;
  before_change();
}

void RunSaver::before_change() {
  if (writer_) writer_->before_change();
}

void RunSaver::keep_best() {
  if (writer_) writer_->keep(best_step());
}

std::optional<std::int64_t> RunSaver::best_step() const {
  const auto& best = parts_.record.best().best();
  return parts_.config.checkpoint.keep_best && best ? std::optional(best->step) : std::nullopt;
}

std::optional<std::int64_t> RunSaver::kept_on_disk() const {
  const std::optional<std::int64_t> best = best_step();
  if (!kept_best_ || !best) return best;
  // The checkpoint that names another was written while the best one was.
  const CheckpointInfo found = inspect_checkpoint(*best, folder() / step_name(*best));
  return found.valid && !found.superseded ? best : kept_best_;
}

std::string RunSaver::best_checkpoint() const {
  const std::optional<std::int64_t> kept = writer_ ? writer_->kept() : std::nullopt;
  return kept ? (folder() / step_name(*kept)).string() : std::string();
}

}  // namespace quench
