// Trainer state from a checkpoint, or new weights.

#include "core/system/key_error.h"
#include "train/metrics/step_metrics.h"
#include "train/record/run_identity.h"
#include "train/run/trainer_run.h"
#include "train/run_folder/run_outputs.h"
#include "train/session/adapter_setup.h"
#include "train/session/learned_scales.h"
#include "train/step/training_state.h"

namespace quench {

namespace fs = std::filesystem;

namespace {

// By its name: links are not followed.
bool is_directly_in(const fs::path& path, const fs::path& folder) {
  std::error_code absent;
  return fs::equivalent(fs::absolute(path).lexically_normal().parent_path(), folder, absent);
}

// The run that wrote the checkpoint trained these layers too, or neither did.
void require_mtp(const CheckpointReader& reader, const nn::ModelConfig& model) {
  const std::string first = fmt::format("model.layers.{}.eh_proj.weight", model.num_hidden_layers);
  const bool stored = reader.find(first) != nullptr;
  QUENCH_CHECK_KEY(ErrorCode::bad_config, "training.mtp_loss_weight", model.mtp.layers > 0 || !stored,
                   "0, but {} holds layers of multi-token prediction, which this run would drop; set the key to their "
                   "weight in the loss, or start a run over the model's export",
                   reader.path().string());
  QUENCH_CHECK_KEY(ErrorCode::bad_config, "training.mtp_loss_weight", model.mtp.layers == 0 || stored,
                   "{} was written without layers of multi-token prediction; set the key to 0, or start a run over the "
                   "model's export",
                   reader.path().string());
}

// Throws with the steps that there are.
void require_step(const fs::path& folder, std::int64_t step) {
  if (fs::exists(folder / step_name(step))) return;
  std::vector<std::int64_t> valid;
  for (const CheckpointInfo& info : list_checkpoints(folder).checkpoints)
    if (info.valid) valid.push_back(info.step);
  QUENCH_FAIL(ErrorCode::bad_config, "checkpoint.resume: {} has no checkpoint of step {}; it has {}", folder.string(),
              step, valid.empty() ? "none" : fmt::format("those of {}", fmt::join(valid, ", ")));
}

}  // namespace

void Trainer::Run::load(CheckpointReader& reader) {
  state_is_consistent = false;
  // Damaged on one rank: skipped by all.
  on_all_ranks("checkpoint", [&] {
    progress = restore_progress(reader.state(), config, inputs.identity, guard);
    if (setup.adapters) require_base(reader.state(), base, reader.path().string());
    plan_steps();
    step->finish_state_copies();
    require_mtp(reader, setup.config);
    restore_training_tensors(reader, *setup.model, *optimizer);
    if (setup.scaling) restore_scaling(reader, *setup.scaling);
    require_positive_scales(*setup.model);
    restore_best(reader.state());
    if (writer) writer->keep(best_step());
  });
  state_is_consistent = true;
}

void Trainer::Run::restore_best(const CheckpointState& state) {
  best.restore(state.extra.find(kBestKey));
  const Json* kept = state.extra.find(kKeptKey);
  kept_best = kept != nullptr && kept->is_number() ? std::optional(kept->as_int()) : std::nullopt;
  const Json* from = state.extra.find(kValidatedFromKey);
  validated_from = from != nullptr && from->is_number() ? from->as_int() : 0;
  if (same_validation(state.data, inputs.identity)) return;
  validated_from = progress.step;
  if (best.best())
    log_lines(fmt::format("{} has changed since the checkpoint: {} {:.4f} at step {}, its best, no longer counts\n",
                          config.data.validation_split ? "the held-out part of data.train" : "data.validation",
                          config.evaluation.early_stopping.metric, best.best()->value, best.best()->step));
  best.restore(nullptr);
  kept_best.reset();
}

void Trainer::Run::resume_or_fill() {
  const fs::path folder = config.checkpoint.folder;
  const Verify verify = config.checkpoint.verify ? Verify::hashes : Verify::none;
  using Mode = ResumeFrom::Mode;
  const ResumeFrom& from = config.checkpoint.resume;
  const fs::path source = load_for_all(verify, [&](const LoadCheckpoint& load_one) -> fs::path {
    if (from.mode == Mode::never) return {};
    if (from.mode == Mode::step) require_step(folder, from.step);
    if (from.mode == Mode::step || from.mode == Mode::path) {
      CheckpointReader reader(from.mode == Mode::path ? fs::path(from.path) : folder / step_name(from.step), verify);
      load_one(reader);
      return reader.path();
    }
    const auto loaded = load_latest(folder, load_one, verify);
    QUENCH_CHECK_AS(ErrorCode::bad_config, from.mode != Mode::must || loaded,
                    "checkpoint.resume is \"must\", but {} holds no checkpoint", folder.string());
    return loaded ? loaded->path : fs::path();
  });
  resumed_path = source.has_filename() ? source : source.parent_path();  // "a/b/"
  resumed_elsewhere = from.mode == Mode::path && !is_directly_in(resumed_path, folder);
  sets_earlier_run_aside = from.mode == Mode::never || resumed_elsewhere;
  if (source.empty()) {
    if (from.mode == Mode::automatic && first()) warn_of_lost_checkpoints(config);
    if (!setup.adapters) fill_model(*setup.model, config);
    optimizer->refresh_master();
    state_is_consistent = true;
    return;
  }
  resumed_step = progress.step;
  // Folder that an interrupted save has renamed: remove_leftovers() restores the name.
  if (!resumed_elsewhere && parse_replaced_name(resumed_path.filename().string()))
    resumed_path.replace_filename(step_name(progress.step));
  if (!resumed_elsewhere) result.checkpoint = (folder / resumed_path.filename()).string();
  log_lines(fmt::format("resumed from {}: step {}, {} tokens seen\n", source.string(), progress.step,
                        format_count(progress.tokens_seen)));
}

}  // namespace quench
