#include "train/config/best_metric.h"

namespace quench {
namespace {

constexpr std::string_view kLoss = "loss", kPerplexity = "perplexity";

}  // namespace

std::optional<BestMetric> find_best_metric(std::string_view name) {
  if (name == kLoss || name == kPerplexity) return BestMetric{name, false, nullptr};
  for (const ObjectiveEntry& objective : objective_table())
    for (const ObjectiveMetric& metric : objective.metrics)
      if (metric.name == name) return BestMetric{metric.name, metric.is_higher_better, &objective};
  return std::nullopt;
}

std::vector<std::string> best_metric_names(const RunConfig& config) {
  const ObjectiveEntry& objective = objective_of(config);
  std::vector<std::string> names = {std::string(kLoss)};
  if (objective.is_likelihood) names.emplace_back(kPerplexity);
  for (const ObjectiveMetric& metric : objective.metrics) names.emplace_back(metric.name);
  return names;
}

std::vector<std::string> best_metric_names() {
  std::vector<std::string> names = {std::string(kLoss), std::string(kPerplexity)};
  for (const ObjectiveEntry& objective : objective_table())
    for (const ObjectiveMetric& metric : objective.metrics) names.emplace_back(metric.name);
  return names;
}

}  // namespace quench
