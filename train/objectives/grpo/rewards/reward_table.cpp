#include "train/objectives/grpo/rewards/reward.h"

namespace quench {

const ChoiceTable<RewardEntry>& reward_table() {
  static const ChoiceTable<RewardEntry> table("reward", {{.name = "exact_match",
                                                          .summary = "the completion is the answer",
                                                          .keys = {"grpo.answer_field"},
                                                          .make = exact_match_reward},
                                                         {.name = "numeric_match",
                                                          .summary = "its last number is the answer",
                                                          .keys = {"grpo.answer_field", "grpo.reward_tolerance"},
                                                          .make = numeric_match_reward},
                                                         {.name = "regex",
                                                          .summary = "a regular expression is found in it",
                                                          .key = "grpo.reward_pattern",
                                                          .keys = {"grpo.answer_field", "grpo.reward_pattern"},
                                                          .make = regex_reward},
                                                         {.name = "command",
                                                          .summary = "a command prints it",
                                                          .key = "grpo.reward_command",
                                                          .keys = {"grpo.reward_command", "grpo.reward_timeout"},
                                                          .make = command_reward}});
  return table;
}

}  // namespace quench
