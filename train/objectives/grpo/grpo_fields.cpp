#include "train/config/fields/field_builder.h"
#include "train/objectives/grpo/grpo_section.h"
#include "train/objectives/grpo/rewards/reward.h"

namespace quench {
namespace {

// (0, 1]
ValueRule share_above_zero() {
  ValueRule rule = between(0, 1);
  rule.above_minimum = true;
  return rule;
}

}  // namespace

void add_grpo_fields(Fields& fields) {
  using enum ResumePolicy;
  add_field(fields, "grpo.num_generations", QUENCH_OBJECTIVE_MEMBER(GrpoSection, num_generations), at_least(2), guarded,
            "Completions that are sampled for each prompt: a group. A step samples training.global_batch_size prompts "
            "times as many.");
  add_field(fields, "grpo.num_iterations", QUENCH_OBJECTIVE_MEMBER(GrpoSection, num_iterations), at_least(1), guarded,
            "Steps over the same samples: completions are sampled in the first of them, and their probabilities then "
            "are those of all ratios.");
  add_field(fields, "grpo.max_completion_length", QUENCH_OBJECTIVE_MEMBER(GrpoSection, max_completion_length),
            at_least(1), guarded,
            "Most tokens of a completion, fewer where prompt and completion would exceed data.seq_len.");
  add_field(fields, "grpo.temperature", QUENCH_OBJECTIVE_MEMBER(GrpoSection, temperature), above(0), guarded,
            "Temperature of sampling. The loss reads the model's own log-probabilities, at temperature 1.");
  add_field(fields, "grpo.top_p", QUENCH_OBJECTIVE_MEMBER(GrpoSection, top_p), share_above_zero(), guarded,
            "Sampling from the smallest set of most likely tokens of at least this probability.");
  add_field(fields, "grpo.top_k", QUENCH_OBJECTIVE_MEMBER(GrpoSection, top_k), at_least(0), guarded,
            "Sampling from so many most likely tokens; 0: all.");
  add_field(fields, "grpo.min_p", QUENCH_OBJECTIVE_MEMBER(GrpoSection, min_p), between(0, 1), guarded,
            "Sampling from tokens of at least this share of the most likely token's probability.");
  add_field(fields, "grpo.beta", QUENCH_OBJECTIVE_MEMBER(GrpoSection, beta), at_least(0), guarded,
            "Weight of the divergence from the reference: the model without its adapters, or, in full training, a "
            "second copy of the model as it is before the first step. 0: no reference is computed.");
  add_field(fields, "grpo.epsilon", QUENCH_OBJECTIVE_MEMBER(GrpoSection, epsilon), between(0, 1), guarded,
            "The ratio of a token's probability in the training pass to that when it was sampled is clipped at 1 minus "
            "this value.");
  add_field(fields, "grpo.epsilon_high", QUENCH_OBJECTIVE_MEMBER(GrpoSection, epsilon_high), at_least(0), guarded,
            "The ratio is clipped at 1 plus this value (DAPO: 0.28).", "grpo.epsilon");
  add_field(fields, "grpo.loss_type", QUENCH_OBJECTIVE_MEMBER(GrpoSection, loss_type), any_value(), guarded,
            "Normalization of the sum over tokens. grpo: mean over each completion's tokens, then over completions; "
            "dapo: mean over the tokens of all completions of the step; dr_grpo: by completions times "
            "grpo.max_completion_length.");
  add_field(fields, "grpo.scale_rewards", QUENCH_OBJECTIVE_MEMBER(GrpoSection, scale_rewards), any_value(), guarded,
            "Divisor of advantages: standard deviation of the rewards of the group, or of the step's batch; none.");
  add_field(fields, "grpo.baseline", QUENCH_OBJECTIVE_MEMBER(GrpoSection, baseline), any_value(), guarded,
            "What an advantage takes off the reward: the mean of the group, or of its other rewards (leave_one_out: "
            "RLOO).");
  add_field(fields, "grpo.importance_sampling_level", QUENCH_OBJECTIVE_MEMBER(GrpoSection, importance_sampling_level),
            any_value(), guarded,
            "Ratios of each token, or one for the sequence: their geometric mean over a completion (GSPO).");
  add_field(fields, "grpo.rewards", QUENCH_OBJECTIVE_MEMBER(GrpoSection, rewards), any_value(), guarded,
            "Rewards of a completion, added up by their weights. exact_match: 1 if it is the record's answer, without "
            "white space at both ends; numeric_match: 1 if its last number is the answer's; regex: 1 if "
            "grpo.reward_pattern is found in it; json_schema: 1 if it is JSON of grpo.reward_schema; command: numbers "
            "that grpo.reward_command prints; http: numbers that grpo.reward_url answers; model: score of "
            "grpo.reward_model; function: of the Python module.");
  add_field(fields, "grpo.answer_field", QUENCH_OBJECTIVE_MEMBER(GrpoSection, answer_field), any_value(), guarded,
            "Field of a record that holds the answer, for exact_match, numeric_match and a regex with a group.");
  add_field(fields, "grpo.reward_tolerance", QUENCH_OBJECTIVE_MEMBER(GrpoSection, reward_tolerance), at_least(0),
            guarded, "Largest difference of equal numbers in numeric_match.");
  add_field(fields, "grpo.reward_pattern", QUENCH_OBJECTIVE_MEMBER(GrpoSection, reward_pattern), optional_text(),
            guarded,
            "ECMAScript regular expression of regex, searched in the last 8192 bytes. With a group in parentheses, the "
            "text of the first one must be the record's answer.");
  add_field(
      fields, "grpo.reward_command", QUENCH_OBJECTIVE_MEMBER(GrpoSection, reward_command), optional_text(), guarded,
      "Shell command of command, run once in a step. It reads a JSON object in each line, {\"prompt\", "
      "\"completion\", \"record\"}, and prints a number for each, a line; null or nan: no reward, and the group is "
      "left out.");
  add_field(fields, "grpo.reward_schema", QUENCH_OBJECTIVE_MEMBER(GrpoSection, reward_schema), optional_path(), guarded,
            "JSON file of json_schema: a subset of JSON Schema (docs/guide/rewards.md#rewards).");
  add_field(fields, "grpo.reward_url", QUENCH_OBJECTIVE_MEMBER(GrpoSection, reward_url), optional_text(), free,
            "URL of http. A step posts {\"samples\": [{\"prompt\", \"completion\", \"record\"}, ...]}; the answer is a "
            "list of numbers, or an object with it as \"rewards\"; null: no reward.");
  add_field(fields, "grpo.reward_model", QUENCH_OBJECTIVE_MEMBER(GrpoSection, reward_model), optional_path(), guarded,
            "Folder of model: a reward model with a scalar head, score.weight, and its tokenizer.");
  add_field(fields, "grpo.reward_timeout", QUENCH_OBJECTIVE_MEMBER(GrpoSection, reward_timeout), above(0), free,
            "Seconds that grpo.reward_command, or a request to grpo.reward_url, may take; then the command is killed "
            "and the run ends with an error, or the request is repeated.");
  add_field(
      fields, "grpo.reward_retries", QUENCH_OBJECTIVE_MEMBER(GrpoSection, reward_retries), between(0, 1000), free,
      "Repetitions of a request to grpo.reward_url that found no server, no answer or a status of 408, 429 or 5xx.");
  add_field(fields, "grpo.log_completions", QUENCH_OBJECTIVE_MEMBER(GrpoSection, log_completions), at_least(0), free,
            "Completions that a logged step adds to samples.jsonl, TensorBoard and the log, with their rewards.");
  add_field(fields, "grpo.best_of.file", QUENCH_OBJECTIVE_MEMBER(GrpoSection, best_of.file), optional_text(), free,
            "File that `quench best-of CONFIG` writes: for each prompt of data.train the best of grpo.num_generations "
            "answers, as a record for fine-tuning. Training does not read it.");
  add_field(fields, "grpo.best_of.model", QUENCH_OBJECTIVE_MEMBER(GrpoSection, best_of.model), optional_path(), free,
            "Model that answers: a model folder, run folder, checkpoint or GGUF file.", "model.path");
  add_field(fields, "grpo.best_of.minimum", QUENCH_OBJECTIVE_MEMBER(GrpoSection, best_of.minimum), any_value(), free,
            "Least reward of an answer in that file; unset: the best answer of every prompt.");
}

}  // namespace quench
