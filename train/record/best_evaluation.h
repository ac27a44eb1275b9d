#pragma once
// Best validation result of a run: early stopping, checkpoint.keep_best.

#include <cstdint>
#include <optional>
#include <string>

#include "core/json/json.h"
#include "train/config/run_config.h"
#include "train/metrics/step_metrics.h"

namespace quench {

class BestEvaluation {
 public:
  explicit BestEvaluation(EvaluationSection::EarlyStopping options) : options_(std::move(options)) {}

  // True if the evaluation is the best so far. Missing and non-finite values are no improvement.
  bool add(const EvaluationMetrics& evaluation);
  // `patience` evaluations in a row have not improved by min_delta.
  [[nodiscard]] bool exhausted() const { return options_.patience > 0 && waited_ >= options_.patience; }
  // "no lower validation loss in 3 evaluations; the lowest is 1.2345 at step 400"; or "no higher ...".
  [[nodiscard]] std::string reason() const;

  struct Entry {
    std::int64_t step = 0;
    double value = 0;
  };
  // The lowest value, or the highest where that is better, whatever min_delta.
  [[nodiscard]] const std::optional<Entry>& best() const noexcept { return best_; }
  // "rewards/accuracies 0.8750 at step 15"; empty: none.
  [[nodiscard]] std::string describe() const;

  // For checkpoints. The state of another metric is not restored; null: none.
  [[nodiscard]] Json state() const;
  void restore(const Json* state);

 private:
  [[nodiscard]] bool is_higher_better() const;
  // `value` is better than `other` by more than `by`.
  [[nodiscard]] bool improves(double value, double other, double by = 0) const;

  EvaluationSection::EarlyStopping options_;
  std::optional<Entry> best_;
  std::optional<double> reference_;  // base of patience: improved by more than min_delta
  std::int64_t waited_ = 0;          // evaluations since
};

}  // namespace quench
