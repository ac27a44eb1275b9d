#pragma once
// Sampling over the ranks of a run: each rank samples for its own prompts, from whole weights.

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "distributed/fsdp/sharded_model.h"
#include "distributed/ranks.h"
#include "train/rollouts/rollouts.h"

namespace quench {

// `ranks` is never null, `sharded` in a single process. Both must outlive the object.
struct RolloutRanks {
  const distributed::Ranks* ranks = distributed::Ranks::single().get();
  distributed::ShardedModel* sharded = nullptr;
  bool failed_together = false;  // the last call of with_whole_weights() or together() threw, on all ranks

  // Runs `work` with whole weights; an error on one rank is an error on all. Collective.
  void with_whole_weights(const std::function<void()>& work);
  // On the meta device: the same with planned ranks; bytes of weights that are gathered.
  [[nodiscard]] std::int64_t plan_whole_weights(const std::function<void()>& work) const;
  // An error on one rank is an error on all. Collective.
  void together(std::string_view label, const std::function<void()>& work);
  // Numbers of all ranks, in rank order, and the place of this rank's. Collective.
  struct Gathered {
    std::vector<double> all;
    std::size_t first = 0;
  };
  [[nodiscard]] Gathered gather(std::span<const double> own) const;
  // Appends micro-batches of padding until all ranks have as many. Collective.
  void even_out(RolloutBatches& batches) const;
};

}  // namespace quench
