#include <algorithm>
#include <vector>

#include "train/check/checker.h"
#include "train/objectives/grpo/grpo_section.h"
#include "train/objectives/grpo/rewards/reward.h"

namespace quench {

void check_grpo(Checker& checker) {
  const RunConfig& config = checker.config();
  const GrpoSection &section = *grpo_section(config), unset;
  if (checker.usable({"grpo.max_completion_length", "data.seq_len"}) &&
      section.max_completion_length >= config.data.seq_len)
    checker.report(
        "grpo.max_completion_length",
        "{}, but prompt and completion share a sequence of data.seq_len {}; use fewer, or raise data.seq_len",
        section.max_completion_length, config.data.seq_len);
  if (checker.usable({"data.validation", "data.validation_split"}) &&
      (!config.data.validation.empty() || config.data.validation_split))
    checker.report(config.data.validation.empty() ? "data.validation_split" : "data.validation",
                   "records of prompts have no loss without sampling, which evaluations do not do; remove the key");
  if (config.parallel.expert > 1 && checker.usable({"parallel.expert"}))
    checker.report("parallel.expert", "{}, but each process samples from whole weights; set it to 1",
                   config.parallel.expert);
  if (!checker.usable({"grpo.rewards"})) return;
  if (section.rewards.weights.empty()) checker.report("grpo.rewards", "names no reward; name one at least");
  std::vector<const RewardEntry*> rewards;
  for (const auto& [name, weight] : section.rewards.weights) rewards.push_back(&reward_table().require(name));
  const auto unused = [&](std::string_view key, bool changed) {
    const bool is_read = std::ranges::any_of(rewards, [&](const RewardEntry* reward) { return reward->reads(key); });
    if (changed && !is_read && checker.usable({key}))
      checker.report(std::string(key), "has no effect on grpo.rewards {}", section.rewards.to_text());
  };
  unused("grpo.answer_field", section.answer_field != unset.answer_field);
  unused("grpo.reward_tolerance", section.reward_tolerance != unset.reward_tolerance);
  unused("grpo.reward_pattern", section.reward_pattern != unset.reward_pattern);
  unused("grpo.reward_command", section.reward_command != unset.reward_command);
  unused("grpo.reward_schema", section.reward_schema != unset.reward_schema);
  unused("grpo.reward_url", section.reward_url != unset.reward_url);
  unused("grpo.reward_model", section.reward_model != unset.reward_model);
  unused("grpo.reward_timeout", section.reward_timeout != unset.reward_timeout);
  unused("grpo.reward_retries", section.reward_retries != unset.reward_retries);
  for (const RewardEntry* reward : rewards)
    if (checker.usable({reward->key.empty() ? "grpo.rewards" : reward->key}))
      checker.judge(reward->key.empty() ? "grpo.rewards" : std::string(reward->key),
                    [&] { (void)reward->make(section); });
}

}  // namespace quench
