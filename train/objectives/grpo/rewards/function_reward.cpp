// Rewards of a function of the program.

#include "train/objectives/grpo/rewards/reward.h"

namespace quench {
namespace {

RewardFunction& current_function() {
  static RewardFunction function;
  return function;
}

class FunctionReward final : public Reward {
 public:
  explicit FunctionReward(RewardFunction function) : function_(std::move(function)) {}
  [[nodiscard]] std::vector<double> score(std::span<const RewardSample> samples) const override {
    std::vector<double> rewards = function_(samples);
    QUENCH_CHECK_AS(ErrorCode::bad_config, rewards.size() == samples.size(),
                    "grpo.rewards function returned {} numbers for {} completions; it has to return one for each",
                    rewards.size(), samples.size());
    return rewards;
  }

 private:
  RewardFunction function_;
};

}  // namespace

void set_reward_function(RewardFunction function) {
  current_function() = std::move(function);
}

std::unique_ptr<Reward> function_reward(const GrpoSection& /*section*/) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, current_function() != nullptr,
                  "names function, which the Python module's Trainer(reward=...) or set_reward_function() gives; this "
                  "program has none: use a command, or a server");
  return std::make_unique<FunctionReward>(current_function());
}

}  // namespace quench
