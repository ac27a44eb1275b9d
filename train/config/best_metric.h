#pragma once
// Validation values by which evaluation.early_stopping and checkpoint.keep_best choose.

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace quench {

struct BestMetric {
  std::string_view name;  // in EvaluationMetrics::values
  bool is_higher_better;
  bool likelihood;  // of runs without section preference
  bool preference;  // of runs with it
};

inline constexpr std::array<BestMetric, 6> kBestMetrics = {{{"loss", false, true, true},
                                                            {"perplexity", false, true, false},
                                                            {"rewards/accuracies", true, false, true},
                                                            {"rewards/margins", true, false, true},
                                                            {"rewards/chosen", true, false, true},
                                                            {"logps/chosen", true, false, true}}};

// Null: unknown.
[[nodiscard]] inline const BestMetric* find_best_metric(std::string_view name) {
  const auto* found = std::ranges::find(kBestMetrics, name, &BestMetric::name);
  return found == kBestMetrics.end() ? nullptr : found;
}

// Names of the metrics of runs with section preference, or without.
[[nodiscard]] inline std::vector<std::string> best_metric_names(bool preference) {
  std::vector<std::string> names;
  for (const BestMetric& metric : kBestMetrics)
    if (preference ? metric.preference : metric.likelihood) names.emplace_back(metric.name);
  return names;
}

[[nodiscard]] inline std::vector<std::string> best_metric_names() {
  std::vector<std::string> names;
  for (const BestMetric& metric : kBestMetrics) names.emplace_back(metric.name);
  return names;
}

}  // namespace quench
