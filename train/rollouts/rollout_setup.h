#pragma once
// Rollouts of a run, from its session and data.

#include <cstdint>
#include <vector>

#include "train/rollouts/rollout_ranks.h"
#include "train/session/data_setup.h"
#include "train/session/run_session.h"

namespace quench {

// Ends of a completion: those of the model's texts, and of its chat template's answers.
[[nodiscard]] std::vector<std::int64_t> rollout_stop_tokens(const RunSession& session, const DataSetup& data);

[[nodiscard]] inline RolloutRanks rollout_ranks(const RunSession& session) {
  return {&session.ranks(), session.sharded()};
}

}  // namespace quench
