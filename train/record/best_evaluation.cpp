#include "train/record/best_evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "train/config/best_metric.h"

namespace quench {

bool BestEvaluation::is_higher_better() const {
  const std::optional<BestMetric> metric = find_best_metric(options_.metric);
  return metric.has_value() && metric->is_higher_better;
}

bool BestEvaluation::improves(double value, double other, double by) const {
  return is_higher_better() ? value > other + by : value < other - by;
}

bool BestEvaluation::add(const EvaluationMetrics& evaluation) {
  const auto found = std::ranges::find(evaluation.values, options_.metric, &std::pair<std::string, double>::first);
  if (found == evaluation.values.end() || !std::isfinite(found->second)) {
    ++waited_;
    return false;
  }
  const double value = found->second;
  const bool better = !best_ || improves(value, best_->value);
  if (better) best_ = Entry{evaluation.step, value};
  if (!reference_ || improves(value, *reference_, options_.min_delta)) {
    reference_ = value;
    waited_ = 0;
  } else {
    ++waited_;
  }
  return better;
}

std::string BestEvaluation::reason() const {
  const bool higher = is_higher_better();
  const std::string best =
      best_ ? fmt::format("the {} is {:.4f} at step {}", higher ? "highest" : "lowest", best_->value, best_->step)
            : std::string("none was finite");
  return fmt::format("no {} validation {} in {} evaluation{}{}; {}", higher ? "higher" : "lower", options_.metric,
                     waited_, waited_ == 1 ? "" : "s",
                     options_.min_delta > 0 ? fmt::format(" (by more than {:g})", options_.min_delta) : "", best);
}

std::string BestEvaluation::describe() const {
  return best_ ? fmt::format("{} {:.4f} at step {}", options_.metric, best_->value, best_->step) : std::string();
}

Json BestEvaluation::state() const {
  Json json = Json::object();
  json.set("metric", options_.metric);
  json.set("waited", waited_);
  if (reference_) json.set("reference", *reference_);
  if (best_) {
    json.set("step", best_->step);
    json.set("value", best_->value);
  }
  return json;
}

void BestEvaluation::restore(const Json* state) {
  best_.reset();
  reference_.reset();
  waited_ = 0;
  const Json* metric = state != nullptr && state->is_object() ? state->find("metric") : nullptr;
  if (metric == nullptr || *metric != Json(options_.metric)) return;
  const auto number = [&](const char* key) -> std::optional<double> {
    const Json* value = state->find(key);
    return value != nullptr && value->is_number() ? std::optional(value->as_double()) : std::nullopt;
  };
  waited_ = static_cast<std::int64_t>(number("waited").value_or(0));
  reference_ = number("reference");
  if (const auto step = number("step"), value = number("value"); step && value)
    best_ = Entry{static_cast<std::int64_t>(*step), *value};
}

}  // namespace quench
