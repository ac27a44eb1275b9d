#include "train/rollouts/rollout_ranks.h"

#include <algorithm>

#include "core/memory/allocator.h"
#include "distributed/communication_error.h"

namespace quench {

void RolloutRanks::with_whole_weights(const std::function<void()>& work) {
  const distributed::ShardedModel::WholeWeights whole(sharded);
  together("completions", work);
}

std::int64_t RolloutRanks::plan_whole_weights(const std::function<void()>& work) const {
  const Allocator& plan = Allocator::of(Device{DeviceType::meta, 0});
  const std::int64_t before = plan.stats().current;
  const distributed::ShardedModel::WholeWeights whole(sharded);
  const std::int64_t gathered = plan.stats().current - before;
  work();
  return gathered;
}

void RolloutRanks::together(std::string_view label, const std::function<void()>& work) {
  failed_together = false;
  try {
    distributed::together(*ranks, label, work);
  } catch (const distributed::CommunicationError&) {
    throw;
  } catch (...) {
    failed_together = true;
    throw;
  }
}

RolloutRanks::Gathered RolloutRanks::gather(std::span<const double> own) const {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks->size));
  const auto rank = static_cast<std::size_t>(ranks->rank);
  counts[rank] = std::ssize(own);
  distributed::all_reduce_numbers(*ranks->host, counts, distributed::ReduceOp::sum, "completions");
  Gathered gathered;
  std::size_t total = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (i == rank) gathered.first = total;
    total += static_cast<std::size_t>(counts[i]);
  }
  gathered.all.resize(total);
  std::ranges::copy(own, gathered.all.begin() + static_cast<std::ptrdiff_t>(gathered.first));
  if (total > 0) distributed::all_reduce_numbers(*ranks->host, gathered.all, distributed::ReduceOp::sum, "completions");
  return gathered;
}

void RolloutRanks::even_out(RolloutBatches& batches) const {
  std::int64_t most = std::ssize(batches.batches);
  distributed::all_reduce_numbers(*ranks->host, std::span(&most, 1), distributed::ReduceOp::max, "micro-batches");
  const Shape shape = batches.batches.front().input_ids.shape();
  while (std::ssize(batches.batches) < most) {
    RolloutBatches empty = pack_rollouts({}, shape[0], shape[1]);
    empty.batches.front().first_sample = batches.batches.size();
    batches.batches.push_back(std::move(empty.batches.front()));
    batches.members.emplace_back();
  }
}

}  // namespace quench
