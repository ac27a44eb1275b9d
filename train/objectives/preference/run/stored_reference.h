#pragma once
// Log-probabilities of answers, computed once.

#include "train/objectives/preference/run/preference_objective.h"

namespace quench {

class StoredReference final : public ReferenceModel {
 public:
  // By source of the dataset and item: sums of the first and of the second answer.
  using Values = std::vector<std::vector<double>>;
  void set(Values values) { values_ = std::move(values); }

  // Throws corrupt for a pair without values.
  [[nodiscard]] Tensor answer_logps(const ObjectiveInput& in) override;

 private:
  Values values_;
};

}  // namespace quench
