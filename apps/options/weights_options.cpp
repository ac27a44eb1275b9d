#include "apps/options/weights_options.h"

#include <set>

#include "train/checkpoint/checkpoint_list.h"
#include "train/config/run_config.h"
#include "train/model_source/model_source.h"
#include "train/step/training_state.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> chosen_checkpoints(const fs::path& source, const WeightsOptions& options) {
  const ModelSource found = ModelSource::open(source);
  QUENCH_CHECK_AS(ErrorCode::bad_config, found.is_trained(),
                  "{} is a {}: --average and --weights are for runs and checkpoints", source.string(),
                  to_string(found.kind()));
  if (options.steps.empty()) return {found.checkpoint()};
  const fs::path& folder = found.checkpoints();
  QUENCH_CHECK_AS(ErrorCode::bad_config, !folder.empty(), "--average needs a run folder with checkpoints; {} is a {}",
                  source.string(), to_string(found.kind()));
  QUENCH_CHECK_AS(ErrorCode::bad_config, options.steps.size() > 1, "--average: one step; name two or more");
  std::vector<std::int64_t> valid;
  for (const CheckpointInfo& info : list_checkpoints(folder).checkpoints)
    if (info.valid) valid.push_back(info.step);
  std::vector<fs::path> paths;
  std::set<std::int64_t> seen;
  for (const std::int64_t step : options.steps) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, seen.insert(step).second, "--average: step {} is named twice", step);
    QUENCH_CHECK_AS(ErrorCode::not_found, std::ranges::find(valid, step) != valid.end(),
                    "--average: {} has no valid checkpoint of step {}; it has those of {}", folder.string(), step,
                    fmt::join(valid, ", "));
    paths.push_back(folder / step_name(step));
  }
  return paths;
}

}  // namespace

void require_weights(const fs::path& source, const WeightsOptions& options) {
  if (!options.given()) return;
  QUENCH_CHECK_AS(ErrorCode::bad_config, options.weights == "final" || options.weights == kAveragedWeights,
                  "--weights '{}' is unknown; use final or {}", options.weights, kAveragedWeights);
  QUENCH_CHECK_AS(ErrorCode::bad_config, options.steps.empty() || options.weights == "final",
                  "--average and --weights {} exclude each other", options.weights);
  for (const fs::path& path : chosen_checkpoints(source, options))
    if (options.weights == kAveragedWeights) require_averages(CheckpointReader(path));
}

LoadedModel load_weights_of(const fs::path& source, const std::string& device, const std::string& dtype,
                            const WeightsOptions& options, MtpLayers mtp) {
  const auto load = [&](const fs::path& from) { return load_model(from, device, dtype, false, {}, {}, mtp); };
  if (!options.given()) return load(source);
  const std::vector<fs::path> paths = chosen_checkpoints(source, options);
  LoadedModel loaded = load(options.steps.empty() ? source : paths.front());
  if (options.steps.empty()) {
    CheckpointReader reader(paths.front());
    restore_averages(reader, *loaded.model);
  } else {
    restore_mean(paths, *loaded.model);
  }
  return loaded;
}

}  // namespace quench
