#pragma once
// Runs of a request by their choices, each estimated once, with a brief simulation (estimate.h), deep models by shallow
// ones (depth_estimate.h).

#include <map>
#include <optional>
#include <vector>

#include "train/plan/search/depth_estimate.h"
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
  [[nodiscard]] const std::vector<std::int64_t>& micro_batches(const PlanCombination& combination) {
    return split(combination).micro_batches;
  }
  [[nodiscard]] bool is_pipelined(const PlanCombination& combination) { return split(combination).stages > 1; }
  // Time in which a pipeline stage waits for others, in that of its passes; 0 for a micro-batch that is not chosen.
  [[nodiscard]] double bubble(const PlanCombination& combination, std::size_t size);
  // Each combination, those with fewer keys first.
  [[nodiscard]] std::vector<PlanCombination> combinations() const;
  [[nodiscard]] std::size_t keys(const PlanCombination& combination) const;

  // nullptr: the config is refused, for fault(). `size`: index into its micro_batches().
  const PlannedRun* run(const PlanCombination& combination, std::size_t size);
  // Index of the largest micro-batch that fits, from `largest` on; unset: none.
  std::optional<std::size_t> largest_fit(const PlanCombination& combination, std::size_t largest = 0);
  // Index of the fastest micro-batch that fits: the largest, or in a pipeline, which smaller ones fill better, the one
  // from which smaller ones take longer; unset: none.
  std::optional<std::size_t> fastest_fit(const PlanCombination& combination);
  // Simulates it as a whole (estimate.h): what run() returns from then on.
  const PlannedRun* confirm(const PlanCombination& combination, std::size_t size);
  // Least seconds of computation in a step of all that were estimated with the same numerics: every split of the
  // model among the GPUs takes as much, without waiting.
  [[nodiscard]] double least_computation(const PlanCombination& combination) const;
  [[nodiscard]] std::string fault(const PlanCombination& combination) const;
  // Least memory of all that were estimated.
  [[nodiscard]] const PlannedRun* smallest() const;
  [[nodiscard]] std::int64_t estimates() const noexcept { return estimates_; }

 private:
  struct Evaluated {
    std::optional<PlannedRun> run;
    std::string fault;
  };
  // Sequences of a process.
  struct Split {
    std::vector<std::int64_t> micro_batches;
    std::int64_t sequences = 1;  // in a step
    std::int64_t stages = 1, chunks = 1;
  };
  const Split& split(const PlanCombination& combination);
  [[nodiscard]] Json document(const PlanCombination& combination) const;
  // From shallow models; unset: there are none, or gaps between tensors decide whether it fits.
  [[nodiscard]] std::optional<RunEstimate> by_depth(const RunConfig& config) const;
  [[nodiscard]] Evaluated evaluate(const PlanCombination& combination, std::size_t size, bool brief);

  PlanRequest request_;
  Json base_;
  std::int64_t layers_ = 0;
  std::optional<ShallowModels> shallow_;
  std::vector<std::vector<PlanChoice>> choices_;
  std::map<PlanCombination, Split> splits_;
  std::map<std::pair<PlanCombination, std::size_t>, Evaluated> evaluated_;
  std::int64_t estimates_ = 0;
};

}  // namespace quench
