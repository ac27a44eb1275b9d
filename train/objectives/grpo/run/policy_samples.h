#pragma once
// Judged completions of a rollout: advantages over their groups, and figures over the groups of all ranks.

#include <cstdint>
#include <vector>

#include "train/objectives/grpo/run/policy_loss.h"
#include "train/rollouts/rollout_ranks.h"

namespace quench {

struct PolicySample {
  std::vector<std::int32_t> prompt;
  Completion completion;
  double advantage = 0;
};

// Means over completions, of all ranks; reward_std of n - 1; zero_std and skipped are shares of groups.
struct RolloutFigures {
  double reward = 0, reward_std = 0, zero_std = 0, length = 0, cut = 0, skipped = 0;
};

struct PolicySamples {
  std::vector<PolicySample> samples;  // this rank's
  RolloutFigures figures;             // equal on all ranks
};

struct AdvantageOptions {
  RewardScale scale = RewardScale::group;
  RewardBaseline baseline = RewardBaseline::mean;
};

// `groups` by prompt, all of one size; `rewards`: of all completions, group by group, NaN for none. Groups with a
// missing reward are left out. RewardScale::batch divides by the deviation over all ranks. Collective.
[[nodiscard]] PolicySamples judged_samples(const std::vector<RolloutPrompt>& prompts,
                                           std::vector<std::vector<Completion>> groups,
                                           const std::vector<double>& rewards, const AdvantageOptions& options,
                                           const RolloutRanks& ranks);

}  // namespace quench
