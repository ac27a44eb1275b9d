#pragma once
// Heat maps of quantization errors per layer. Empty without measurements.

#include <string>

#include "train/report/run_data.h"

namespace quench {

[[nodiscard]] std::string render_health(const RunData& run);

// Lowest SQNR of the run, or non-finite; nullptr without measurements.
struct WorstHealth {
  const HealthSeries* series = nullptr;
  const HealthPoint* point = nullptr;
};
[[nodiscard]] WorstHealth worst_health(const RunData& run);
// Training warns of this SQNR.
[[nodiscard]] bool is_poor(const HealthSeries& series, const HealthPoint& point);

// "model.layers.3.mlp.down_proj" -> "3.down_proj"
[[nodiscard]] std::string short_layer_name(const std::string& name);

}  // namespace quench
