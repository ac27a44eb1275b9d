#pragma once
// Request of a plan: a model, GPUs, the tokens of a step, and what is trained.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "core/system/choice_table.h"
#include "nn/spec/model_config.h"
#include "train/plan/step_time.h"

namespace quench {

// Trained weights, by name.
struct PlanObjective {
  std::string_view name;
  std::string_view summary;
  std::string_view sections;  // members of the run config, JSON
};
// Default first: full, lora, qlora.
[[nodiscard]] const ChoiceTable<PlanObjective>& plan_objectives();

struct PlanRequest {
  std::string model;  // preset, or a model folder
  std::int64_t gpus = 1;
  Cluster cluster;  // with the GPU, its rates and the machines
  std::int64_t tokens_per_step = 0;
  std::int64_t seq_len = 2048;
  std::string objective = "full";
  std::vector<std::string> overrides;  // --section.key=value: kept, not chosen
  std::int64_t host_bytes = 0;         // host memory of a machine; 0: not limited

  // In a step, of all GPUs.
  [[nodiscard]] std::int64_t sequences() const { return tokens_per_step / seq_len; }
};

// The parts of a run config that are not chosen: model, length, tokens of a step, objective. Throws bad_config for an
// unknown model or objective.
[[nodiscard]] Json planned_document(const PlanRequest& request);

// Throws bad_config for numbers that do not fit each other, with the nearest that do.
void check_request(const PlanRequest& request);

}  // namespace quench
