// Values of a run from a checkpoint, or new ones.

#include "core/system/key_error.h"
#include "core/system/log.h"
#include "train/metrics/step_metrics.h"
#include "train/run/run_saver.h"
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

fs::path RunSaver::load_for_all(Verify verify, const std::function<fs::path(const LoadCheckpoint&)>& choose) {
  return load_chosen(
      *parts_.session.ranks().host, verify, [this](CheckpointReader& reader) { load(reader); }, choose);
}

void RunSaver::load(CheckpointReader& reader) {
  RunSession& session = parts_.session;
  is_consistent_ = false;
  // Damaged on one rank: skipped by all.
  distributed::together(session.ranks(), "checkpoint", [&] {
    parts_.progress = restore_progress(reader.state(), parts_.config, parts_.identity, parts_.guard);
    if (session.setup().adapters) require_base(reader.state(), session.base_hash(), reader.path().string());
    session.step()->finish_state_copies();
    require_mtp(reader, session.model_config());
    restore_training_tensors(reader, session.model(), *session.optimizer());
    if (const auto& scaling = session.setup().scaling) restore_scaling(reader, *scaling);
    if (Objective* trained = session.objective()->training(); trained != nullptr)
      trained->restore(objective_state(reader));
    require_positive_scales(session.model());
    parts_.record.restore(reader.state(), parts_.identity, parts_.progress.step);
    const Json* kept = reader.state().extra.find(kKeptKey);
    kept_best_ = kept != nullptr && kept->is_number() ? std::optional(kept->as_int()) : std::nullopt;
    keep_best();
  });
  is_consistent_ = true;
}

void RunSaver::resume_or_fill() {
  using Mode = ResumeFrom::Mode;
  const RunConfig& config = parts_.config;
  const Verify verify = config.checkpoint.verify ? Verify::hashes : Verify::none;
  const ResumeFrom& from = config.checkpoint.resume;
  const distributed::Ranks& ranks = parts_.session.ranks();
  if (!config.checkpoint.remote.empty()) {
    remote_ = std::make_unique<RemoteCheckpoints>(config.checkpoint, ranks.rank, ranks.size);
    distributed::first_rank_first(*ranks.host, "remote checkpoint", [&] {
      if (ranks.is_first()) remote_->fetch();
    });
  }
  const fs::path source = load_for_all(verify, [&](const LoadCheckpoint& load_one) -> fs::path {
    if (from.mode == Mode::never) return {};
    if (from.mode == Mode::step) require_step(folder(), from.step);
    if (from.mode == Mode::step || from.mode == Mode::path) {
      CheckpointReader reader(from.mode == Mode::path ? fs::path(from.path) : folder() / step_name(from.step), verify);
      load_one(reader);
      return reader.path();
    }
    const auto loaded = load_latest(folder(), load_one, verify);
    QUENCH_CHECK_AS(ErrorCode::bad_config, from.mode != Mode::must || loaded,
                    "checkpoint.resume is \"must\", but {} holds no checkpoint", folder().string());
    return loaded ? loaded->path : fs::path();
  });
  resumed_path_ = source.has_filename() ? source : source.parent_path();  // "a/b/"
  resumed_elsewhere_ = from.mode == Mode::path && !is_directly_in(resumed_path_, folder());
  sets_earlier_run_aside_ = from.mode == Mode::never || resumed_elsewhere_;
  if (source.empty()) {
    if (from.mode == Mode::automatic && parts_.session.ranks().is_first()) warn_of_lost_checkpoints(config);
    parts_.session.fill();
    is_consistent_ = true;
    return;
  }
  const std::int64_t step = parts_.progress.step;
  resumed_step_ = step;
  // Folder that an interrupted save has renamed: remove_leftovers() restores the name.
  if (!resumed_elsewhere_ && parse_replaced_name(resumed_path_.filename().string()))
    resumed_path_.replace_filename(step_name(step));
  if (!resumed_elsewhere_) newest_ = (folder() / resumed_path_.filename()).string();
  parts_.record.log(fmt::format("resumed from {}: step {}, {} tokens seen\n", source.string(), step,
                                format_count(parts_.progress.tokens_seen)));
}

void RunSaver::go_back(const std::string& reason) {
  wait();  // earlier failures are no reason to stay at this step
  // Not the folder's newest: it may be of a line that the run left when it resumed.
  std::vector<fs::path> line = writer_ ? writer_->saved() : std::vector<fs::path>();
  if (!resumed_path_.empty()) line.push_back(resumed_path_);
  const fs::path loaded =
      load_for_all(Verify::hashes, [&](const LoadCheckpoint& load_one) { return load_first(line, load_one); });
  QUENCH_CHECK_AS(ErrorCode::nonfinite, !loaded.empty(), "{}; there is no checkpoint to roll back to", reason);
  const std::int64_t step = parts_.progress.step;
  QUENCH_LOG_WARN("rolled back to step {} ({})", step, loaded.string());
  if (writer_) writer_->go_back(step);
  saved_step_ = step;
}

}  // namespace quench
