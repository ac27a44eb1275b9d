#include "train/model/weights_choice.h"

#include <algorithm>
#include <set>

#include "train/checkpoint/checkpoint_list.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/config/run_config.h"
#include "train/step/training_state.h"

namespace quench {

namespace fs = std::filesystem;

std::vector<fs::path> chosen_checkpoints(const ModelSource& source, const WeightsChoice& choice) {
  if (!choice.given()) return {source.checkpoint()};
  QUENCH_CHECK_AS(ErrorCode::bad_config, source.is_trained(),
                  "{} is a {}: --average and --weights are for runs and checkpoints", source.path().string(),
                  to_string(source.kind()));
  if (choice.steps.empty()) return {source.checkpoint()};
  const fs::path& folder = source.checkpoints();
  QUENCH_CHECK_AS(ErrorCode::bad_config, !folder.empty(), "--average needs a run folder with checkpoints; {} is a {}",
                  source.path().string(), to_string(source.kind()));
  QUENCH_CHECK_AS(ErrorCode::bad_config, choice.steps.size() > 1, "--average: one step; name two or more");
  std::vector<std::int64_t> valid;
  for (const CheckpointInfo& info : list_checkpoints(folder).checkpoints)
    if (info.valid) valid.push_back(info.step);
  std::vector<fs::path> paths;
  std::set<std::int64_t> seen;
  for (const std::int64_t step : choice.steps) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, seen.insert(step).second, "--average: step {} is named twice", step);
    QUENCH_CHECK_AS(ErrorCode::not_found, std::ranges::find(valid, step) != valid.end(),
                    "--average: {} has no valid checkpoint of step {}; it has those of {}", folder.string(), step,
                    fmt::join(valid, ", "));
    paths.push_back(folder / step_name(step));
  }
  return paths;
}

void require_weights(const fs::path& source, const WeightsChoice& choice) {
  if (!choice.given()) return;
  QUENCH_CHECK_AS(ErrorCode::bad_config, choice.weights == "final" || choice.weights == kAveragedWeights,
                  "--weights '{}' is unknown; use final or {}", choice.weights, kAveragedWeights);
  QUENCH_CHECK_AS(ErrorCode::bad_config, choice.steps.empty() || choice.weights == "final",
                  "--average and --weights {} exclude each other", choice.weights);
  for (const fs::path& path : chosen_checkpoints(ModelSource::open(source), choice))
    if (choice.weights == kAveragedWeights) require_averages(CheckpointReader(path));
}

}  // namespace quench
