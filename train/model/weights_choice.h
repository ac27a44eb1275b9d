#pragma once
// Weights of a run other than those of its newest checkpoint.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "train/model_source/model_source.h"

namespace quench {

struct WeightsChoice {
  std::vector<std::int64_t> steps = {};  // mean of these; empty: one checkpoint
  std::string weights = "final";         // or kAveragedWeights

  [[nodiscard]] bool given() const { return !steps.empty() || weights != "final"; }
};

// Checkpoints of these weights: the one of the source, or those of the steps. Throws bad_config or not_found if it has
// no such steps.
[[nodiscard]] std::vector<std::filesystem::path> chosen_checkpoints(const ModelSource& source,
                                                                    const WeightsChoice& choice);

// Throws bad_config if `source` is no run or checkpoint, or has no such steps or averages.
void require_weights(const std::filesystem::path& source, const WeightsChoice& choice);

}  // namespace quench
