#include "train/run/best_evaluation.h"

#include <fmt/format.h>

#include <cmath>

namespace quench {

bool BestEvaluation::add(const EvaluationMetrics& evaluation) {
  for (const auto& [name, value] : evaluation.values) {
    if (name != options_.metric) continue;
    const bool finite = std::isfinite(value);
    const bool better = finite && (!best_ || value < best_->value);
    if (better) best_ = Entry{evaluation.step, value};
    if (finite && (!reference_ || value < *reference_ - options_.min_delta)) {
      reference_ = value;
      waited_ = 0;
    } else {
      ++waited_;
    }
    return better;
  }
  return false;
}

std::string BestEvaluation::reason() const {
  const std::string best = best_ ? fmt::format("the lowest is {:.4f} at step {}", best_->value, best_->step)
                                 : std::string("none was finite");
  return fmt::format("no lower validation {} in {} evaluation{}{}; {}", options_.metric, waited_,
                     waited_ == 1 ? "" : "s",
                     options_.min_delta > 0 ? fmt::format(" (by more than {:g})", options_.min_delta) : "", best);
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
