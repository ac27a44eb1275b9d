#include "train/objectives/grpo/rewards/reward.h"

namespace quench {

Json to_json(const RewardSample& sample) {
  Json json = Json::object();
  json.set("prompt", std::string(sample.prompt));
  json.set("completion", std::string(sample.completion));
  json.set("record", sample.record);
  return json;
}

const ChoiceTable<RewardEntry>& reward_table() {
  static const ChoiceTable<RewardEntry> table(
      "reward",
      {{.name = "exact_match",
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
       {.name = "json_schema",
        .summary = "it is JSON of a schema",
        .key = "grpo.reward_schema",
        .keys = {"grpo.reward_schema"},
        .make = json_schema_reward},
       {.name = "command",
        .summary = "a command prints it",
        .key = "grpo.reward_command",
        .keys = {"grpo.reward_command", "grpo.reward_timeout"},
        .make = command_reward},
       {.name = "http",
        .summary = "a server answers it",
        .key = "grpo.reward_url",
        .keys = {"grpo.reward_url", "grpo.reward_timeout", "grpo.reward_retries"},
        .make = http_reward},
       {.name = "model",
        .summary = "score of a reward model",
        .key = "grpo.reward_model",
        .keys = {"grpo.reward_model"},
        .make = model_reward},
       {.name = "function", .summary = "a function of the Python module's Trainer", .make = function_reward}});
  return table;
}

}  // namespace quench
