#include <fmt/ranges.h>

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
  if (!checker.usable({"grpo.reward"})) return;
  const RewardEntry* reward = reward_table().find(section.reward);
  if (reward == nullptr) return;
  const auto unused = [&](std::string_view key, bool changed) {
    if (changed && !reward->reads(key) && checker.usable({key}))
      checker.report(std::string(key), "has no effect on grpo.reward {}", section.reward);
  };
  unused("grpo.answer_field", section.answer_field != unset.answer_field);
  unused("grpo.reward_tolerance", section.reward_tolerance != unset.reward_tolerance);
  unused("grpo.reward_pattern", section.reward_pattern != unset.reward_pattern);
  unused("grpo.reward_command", section.reward_command != unset.reward_command);
  unused("grpo.reward_timeout", section.reward_timeout != unset.reward_timeout);
  if (checker.usable({"grpo.reward_pattern", "grpo.reward_command"}))
    checker.judge(reward->key.empty() ? "grpo.reward" : std::string(reward->key), [&] { (void)reward->make(section); });
}

}  // namespace quench
