#pragma once
// Validation values by which evaluation.early_stopping and checkpoint.keep_best choose: the loss, the perplexity of
// objectives that measure a likelihood, and the objectives' own (ObjectiveEntry::metrics).

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/config/objective_table.h"

namespace quench {

struct BestMetric {
  std::string_view name;  // in EvaluationMetrics::values
  bool is_higher_better;
  const ObjectiveEntry* owner;  // null: any, of perplexity those of likelihoods
};

// Nullopt: unknown.
[[nodiscard]] std::optional<BestMetric> find_best_metric(std::string_view name);
// Names of the values of the run's evaluations.
[[nodiscard]] std::vector<std::string> best_metric_names(const RunConfig& config);
// Names of the values of all objectives.
[[nodiscard]] std::vector<std::string> best_metric_names();

}  // namespace quench
