#pragma once
// A plan as text, as JSON, and as a run config.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/plan/search/plan_search.h"

namespace quench {

// The choices, predicted memory and speed, and why each alternative loses.
[[nodiscard]] std::string to_string(const Plan& plan, const PlanRequest& request);
// The same; bytes as integers.
[[nodiscard]] Json to_json(const Plan& plan, const PlanRequest& request);

// Data of a run, which its plan does not name.
struct PlanData {
  std::vector<std::string> train = {};     // data.train; empty: left out
  std::optional<std::int64_t> steps = {};  // unset: one epoch
};
// Text of a run config for `quench train`, with the request and the predictions as comments, and the request's
// overrides in it.
[[nodiscard]] std::string plan_config(const Plan& plan, const PlanRequest& request, const PlanData& data);

}  // namespace quench
