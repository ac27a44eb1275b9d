#pragma once
// Config section grpo: policy optimization on groups of sampled completions.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/system/enum_names.h"
#include "train/config/run_config.h"
#include "train/objectives/grpo/rewards/reward_choice.h"

namespace quench {

class Checker;
struct Field;

// Normalization of the sum over tokens.
enum class PolicyLossType : std::uint8_t {
  grpo,     // mean over a completion's tokens, then over completions (https://arxiv.org/abs/2402.03300)
  dapo,     // mean over the tokens of all completions of the step (https://arxiv.org/abs/2503.14476)
  dr_grpo,  // by the number of completions times max_completion_length (https://arxiv.org/abs/2503.20783)
};
template <>
struct EnumNames<PolicyLossType> {
  using E = PolicyLossType;
  static constexpr EnumTable<E, 3> values = {{{E::grpo, "grpo"}, {E::dapo, "dapo"}, {E::dr_grpo, "dr_grpo"}}};
};

// Divisor of advantages.
enum class RewardScale : std::uint8_t {
  group,  // standard deviation of the group's rewards
  batch,  // over all rewards of the step
  none,
};
template <>
struct EnumNames<RewardScale> {
  using E = RewardScale;
  static constexpr EnumTable<E, 3> values = {{{E::group, "group"}, {E::batch, "batch"}, {E::none, "none"}}};
};

// Baseline that is subtracted from a reward.
enum class RewardBaseline : std::uint8_t {
  mean,           // mean of the group
  leave_one_out,  // mean of the group's other rewards: RLOO (https://arxiv.org/abs/2402.14740)
};
template <>
struct EnumNames<RewardBaseline> {
  using E = RewardBaseline;
  static constexpr EnumTable<E, 2> values = {{{E::mean, "mean"}, {E::leave_one_out, "leave_one_out"}}};
};

// Unit of the ratio of probabilities.
enum class ImportanceLevel : std::uint8_t {
  token,
  sequence,  // geometric mean over the completion: GSPO (https://arxiv.org/abs/2507.18071)
};
template <>
struct EnumNames<ImportanceLevel> {
  using E = ImportanceLevel;
  static constexpr EnumTable<E, 2> values = {{{E::token, "token"}, {E::sequence, "sequence"}}};
};

struct GrpoSection {
  // Output and model of `quench best-of`.
  struct BestOfAnswers {
    std::string file;               // written
    std::string model;              // that answers; empty: model.path
    std::optional<double> minimum;  // least reward of a written answer

    friend bool operator==(const BestOfAnswers&, const BestOfAnswers&) = default;
  };

  std::int64_t num_generations = 8;
  std::int64_t num_iterations = 1;
  std::int64_t max_completion_length = 256;
  double temperature = 1;
  double top_p = 1;
  std::int64_t top_k = 0;
  double min_p = 0;
  double beta = 0;
  double epsilon = 0.2;
  std::optional<double> epsilon_high;  // unset: epsilon
  PolicyLossType loss_type = PolicyLossType::dapo;
  RewardScale scale_rewards = RewardScale::group;
  RewardBaseline baseline = RewardBaseline::mean;
  ImportanceLevel importance_sampling_level = ImportanceLevel::token;
  RewardChoice rewards{.weights = {{"exact_match", 1.0}}};
  std::string answer_field = "answer";
  double reward_tolerance = 1e-6;
  std::string reward_pattern;
  std::string reward_command;
  std::string reward_schema;  // JSON file
  std::string reward_url;
  std::string reward_model;    // folder
  double reward_timeout = 60;  // seconds
  std::int64_t reward_retries = 3;
  std::int64_t log_completions = 2;
  BestOfAnswers best_of;

  friend bool operator==(const GrpoSection&, const GrpoSection&) = default;
};

// Null: absent.
[[nodiscard]] inline const GrpoSection* grpo_section(const RunConfig& config) {
  return config.objectives.find<GrpoSection>();
}

// Rows of the section, and its checks, for the objective's entry.
void add_grpo_fields(std::vector<Field>& fields);
void check_grpo(Checker& checker);

}  // namespace quench
