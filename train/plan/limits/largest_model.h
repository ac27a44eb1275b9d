#pragma once
// Largest model of a run: the embedded model with the most parameters whose estimate (train/plan/estimate.h) fits
// device and host memory in place of the config's own, everything else of the config unchanged.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/plan/estimate.h"

namespace quench {

// One embedded model of the ladder.
struct ModelRung {
  std::string_view name;
  std::int64_t parameters = 0;
  std::optional<RunEstimate> estimate;  // nullopt: the config does not suit the model
  std::string fault;                    // then: why
};

// The ladder down to its answer.
struct LargestModel {
  std::vector<ModelRung> rungs;  // largest first, down to the first that fits
  // nullptr if none fits.
  [[nodiscard]] const ModelRung* largest() const noexcept;
};

// The run with an embedded model in place of its own. Throws ConfigError where it does not suit the model.
using ConfigOfModel = std::function<RunConfig(std::string_view model)>;

// Throws bad_config if the memory is unknown.
[[nodiscard]] LargestModel largest_model(const ConfigOfModel& config_of, Device target, const Cluster& cluster = {});

// The model, the ladder and the run's estimate.
[[nodiscard]] std::string to_string(const LargestModel& ladder);
// The estimate of the largest model, or null, under "estimate".
[[nodiscard]] Json to_json(const LargestModel& ladder);

}  // namespace quench
