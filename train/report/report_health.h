#pragma once
// What quantization lost in each layer over the run, as heat maps. HTML, empty when nothing was measured.

#include <string>

#include "train/report/run_data.h"

namespace quench {

[[nodiscard]] std::string render_health(const RunData& run);

// The operand with the lowest ratio of the run, or one that was not finite; nullptr when nothing was measured.
struct WorstHealth {
  const HealthSeries* series = nullptr;
  const HealthPoint* point = nullptr;
};
[[nodiscard]] WorstHealth worst_health(const RunData& run);
// Whether the point is one that training warns of by its ratio.
[[nodiscard]] bool is_poor(const HealthSeries& series, const HealthPoint& point);

// "model.layers.3.mlp.down_proj" -> "3.down_proj"
[[nodiscard]] std::string short_layer_name(const std::string& name);

}  // namespace quench
