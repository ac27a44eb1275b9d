#pragma once
// Axes of a plan: the table of what is chosen for a run beyond its request, each a list of alternatives in config keys.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nn/spec/model_config.h"
#include "train/plan/search/plan_request.h"

namespace quench {

struct PlanChoice {
  std::string label;         // "selective, MLPs recomputed"
  Json::Object values = {};  // "training.activation_checkpoint": "selective", ...; empty: the defaults
  bool detour = false;       // on a ladder: may take longer than later choices
};

// A row of the table. Along a ladder each choice takes no more memory than those before, and no less time than those
// before that are no detours.
struct PlanAxis {
  std::string_view name;
  bool ladder = false;
  bool ordered = true;       // the last choice takes the least memory of a GPU
  bool is_numerics = false;  // which GEMMs run in which format
  std::vector<PlanChoice> (*choices)(const PlanRequest& request, const nn::ModelConfig& model) = nullptr;
};

// In the order of the report.
[[nodiscard]] std::span<const PlanAxis> plan_axes();

// Choices of an axis for a request: one, without values, where the request's overrides have a key of the axis.
[[nodiscard]] std::vector<PlanChoice> choices_of(const PlanAxis& axis, const PlanRequest& request,
                                                 const nn::ModelConfig& model);

// Sequences of a micro-batch: divisors of the `sequences` that a process has in a step, largest first; the request's
// alone, as 0, if its overrides have the key.
[[nodiscard]] std::vector<std::int64_t> micro_batches_of(const PlanRequest& request, std::int64_t sequences);

}  // namespace quench
