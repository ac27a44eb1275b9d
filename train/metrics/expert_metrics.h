#pragma once
// Expert load of one step, a record of experts.jsonl.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/json/json.h"
#include "nn/experts/expert_load.h"

namespace quench {

struct ExpertMetrics {
  std::int64_t step = 0;
  std::vector<nn::ExpertLoad::Layer> layers;
  double unix_time = 0;  // see StepMetrics

  // Max/mean load of the worst layer; 1: balanced.
  [[nodiscard]] double imbalance() const {
    double worst = 0;
    for (const nn::ExpertLoad::Layer& layer : layers) worst = std::max(worst, layer.imbalance());
    return worst;
  }
};

// experts.jsonl (json_lines_sink.h).
[[nodiscard]] Json to_json(const ExpertMetrics& metrics);

}  // namespace quench
