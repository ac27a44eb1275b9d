#pragma once
// Judged completions of a rollout: advantages over their groups, and figures over the groups of all ranks.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/objectives/grpo/rewards/reward_set.h"
#include "train/objectives/grpo/run/policy_loss.h"
#include "train/rollouts/rollout_ranks.h"

namespace quench {

struct PolicySample {
  std::vector<std::int32_t> prompt;
  Completion completion;
  double advantage = 0;
};

// Means over completions, of all ranks; deviations of n - 1; zero_std and skipped are shares of groups.
struct RolloutFigures {
  double reward = 0, reward_std = 0, zero_std = 0, length = 0, cut = 0, skipped = 0;
  std::vector<double> part_means, part_stds;  // by reward, over the completions that have it; NaN without any
};

struct PolicySamples {
  std::vector<PolicySample> samples;  // this rank's
  RolloutFigures figures;             // equal on all ranks
};

struct AdvantageOptions {
  RewardScale scale = RewardScale::group;
  RewardBaseline baseline = RewardBaseline::mean;
};

// `groups` by prompt, all of one size; `scores`: of all completions, group by group. Groups with a missing total are
// left out. RewardScale::batch divides by the deviation over all ranks. Collective.
[[nodiscard]] PolicySamples judged_samples(const std::vector<RolloutPrompt>& prompts,
                                           std::vector<std::vector<Completion>> groups, const RewardScores& scores,
                                           const AdvantageOptions& options, const RolloutRanks& ranks);

// Samples of all ranks as text, for a checkpoint. `step`: the first that reads them. Collective.
[[nodiscard]] std::string write_samples(const PolicySamples& samples, std::int64_t step, const RolloutRanks& ranks);
// This rank's of such a text, and its step; another number of ranks shares them in their order. Throws corrupt.
struct StoredSamples {
  PolicySamples samples;
  std::int64_t step = 0;
};
[[nodiscard]] StoredSamples read_samples(std::string_view text, const RolloutRanks& ranks);

}  // namespace quench
