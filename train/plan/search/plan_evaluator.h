#pragma once
// Runs of a request by their choices, each estimated once, with a brief simulation (estimate.h).

#include <map>
#include <optional>
#include <vector>

#include "train/plan/search/plan_axis.h"
#include "train/plan/search/plan_search.h"

namespace quench {

// Index of the choice of each axis.
using PlanCombination = std::vector<std::size_t>;

class PlanEvaluator {
 public:
  // Throws bad_config for a model that cannot be read.
  explicit PlanEvaluator(const PlanRequest& request);

  [[nodiscard]] const PlanRequest& request() const noexcept { return request_; }
  // By axis.
  [[nodiscard]] const std::vector<std::vector<PlanChoice>>& choices() const noexcept { return choices_; }
  // Largest first; the same for combinations that differ on ladders alone. One, of 1, for a combination that is
  // refused.
  [[nodiscard]] const std::vector<std::int64_t>& micro_batches(const PlanCombination& combination);
  // Each combination, those with fewer keys first.
  [[nodiscard]] std::vector<PlanCombination> combinations() const;
  [[nodiscard]] std::size_t keys(const PlanCombination& combination) const;

  // nullptr: the config is refused, for fault(). `size`: index into its micro_batches().
  const PlannedRun* run(const PlanCombination& combination, std::size_t size);
  // Index of the largest micro-batch that fits, from `largest` on; unset: none.
  std::optional<std::size_t> largest_fit(const PlanCombination& combination, std::size_t largest = 0);
  // Simulates it as a whole (estimate.h): what run() returns from then on.
  const PlannedRun* confirm(const PlanCombination& combination, std::size_t size);
  [[nodiscard]] std::string fault(const PlanCombination& combination) const;
  // Least memory of all that were estimated.
  [[nodiscard]] const PlannedRun* smallest() const;
  [[nodiscard]] std::int64_t estimates() const noexcept { return estimates_; }

 private:
  struct Evaluated {
    std::optional<PlannedRun> run;
    std::string fault;
  };
  [[nodiscard]] Json document(const PlanCombination& combination) const;
  [[nodiscard]] Evaluated evaluate(const PlanCombination& combination, std::size_t size, Simulation simulation);

  PlanRequest request_;
  Json base_;
  std::vector<std::vector<PlanChoice>> choices_;
  std::map<PlanCombination, std::vector<std::int64_t>> micro_batches_;
  std::map<std::pair<PlanCombination, std::size_t>, Evaluated> evaluated_;
  std::int64_t estimates_ = 0;
};

}  // namespace quench
