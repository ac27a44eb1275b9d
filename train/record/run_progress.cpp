#include "train/record/run_progress.h"

#include "core/system/log.h"
#include "train/check/load.h"
#include "train/config/run_plugins.h"
#include "train/doctor/build_info.h"
#include "train/session/data_setup.h"

namespace quench {
namespace {

// With the sequences of a step, which otherwise follow from micro_batch_size, a key that may change.
RunConfig with_step_size(RunConfig config) {
  config.training.global_batch_size = global_batch_size(config);
  return config;
}

}  // namespace

CheckpointState checkpoint_state(const RunConfig& config, const RunIdentity& identity, const RunProgress& progress,
                                 const LossGuard& guard) {
  CheckpointState state;
  state.step = progress.step;
  state.tokens_seen = progress.tokens_seen;
  state.samples = progress.samples;
  state.tool_version = program_version();
  state.config = to_json(with_step_size(config));
  state.data = to_json(identity);
  // Draws are keyed by (seed, name, step, element): the seed is the RNG state.
  state.rng.set("seed", config.training.seed);
  state.extra.set("loss", progress.loss);
  state.extra.set("loss_guard", guard.state());
  store_plugins(state);
  return state;
}

RunProgress restore_progress(const CheckpointState& state, const RunConfig& config, const RunIdentity& identity,
                             LossGuard& guard) {
  require_plugins(state);
  const RunConfig saved = with_step_size(
      run_config_from_json(state.config, "the checkpoint's config", {}, {.data = false, .files = false}));
  const std::vector<ConfigChange> changes = run_changes(state.data, saved, identity, with_step_size(config));
  require_resumable(changes, config);
  if (!changes.empty()) QUENCH_LOG_INFO("config changed since the checkpoint:\n{}", to_string(changes));
  if (const Json* windows = state.extra.find("loss_guard")) guard.restore(*windows);
  const Json* loss = state.extra.find("loss");
  return {.step = state.step,
          .tokens_seen = state.tokens_seen,
          .samples = state.samples,
          .loss = loss != nullptr && loss->is_number() ? loss->as_double() : 0.0};
}

std::string finished_message(const RunConfig& config, const RunProgress& progress, std::int64_t steps) {
  const bool by_epochs = config.training.epochs && (!config.training.steps || steps < *config.training.steps);
  return fmt::format("the run in {} is finished, at step {} of {}; to continue, raise training.{}", config.run.folder,
                     progress.step, steps, by_epochs ? "epochs" : "steps");
}

}  // namespace quench
