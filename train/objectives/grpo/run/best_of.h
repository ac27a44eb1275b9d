#pragma once
// Rejection sampling: the best of a model's sampled answers to each prompt, by the rewards of section grpo.

#include <cstdint>
#include <string>
#include <vector>

#include "train/config/run_config.h"
#include "train/objectives/grpo/grpo_section.h"
#include "train/objectives/grpo/rewards/reward_set.h"
#include "train/rollouts/rollouts.h"

namespace quench {

// Sampling of section grpo, without stop tokens.
[[nodiscard]] RolloutOptions grpo_rollout(const RunConfig& config);

struct BestOfPrompt {
  RolloutPrompt rollout;
  Json answered = Json::object();  // record with "prompt", a text, or "messages", to which the answer is added
};

struct BestOfCounts {
  std::int64_t prompts = 0, accepted = 0, without_reward = 0;
  double reward = 0;  // sum over accepted answers
};

class BestOf {
 public:
  // `model` and `tokenizer` must outlive it. Throws as the rewards.
  BestOf(const RunConfig& config, const nn::CausalLm& model, const Tokenizer& tokenizer,
         std::vector<std::int64_t> stop_tokens);

  // Lines of JSON: the record with the first of the answers of highest reward, and "reward"; none where that is below
  // grpo.best_of.minimum, or no answer has a reward. Draws depend on training.seed, the prompt's place among all
  // prompts and the number of the answer.
  [[nodiscard]] std::string answer(std::vector<BestOfPrompt> prompts);
  [[nodiscard]] const BestOfCounts& counts() const noexcept { return counts_; }

 private:
  const nn::CausalLm& model_;
  const Tokenizer& tokenizer_;
  RolloutOptions options_;
  RewardSet rewards_;
  std::optional<double> minimum_;
  BestOfCounts counts_;
};

}  // namespace quench
