#pragma once
// Rewards of a run by name, each with its weight in the sum: grpo.rewards.

#include <string>
#include <utility>
#include <vector>

#include "train/config/value_codec.h"

namespace quench {

struct RewardChoice {
  std::vector<std::pair<std::string, double>> weights;  // names of reward_table(), each once

  // "numeric_match + 0.5 x regex"
  [[nodiscard]] std::string to_text() const;
  friend bool operator==(const RewardChoice&, const RewardChoice&) = default;
};

// A name, a list of names, or an object of names with their weights.
template <>
struct Codec<RewardChoice> {
  static constexpr ValueKind kind = ValueKind::text_list;
  static std::string type(const ValueRule& rule);
  static Json schema(const ValueRule& rule);
  static ReadError read(const Json& value, const ValueRule& rule, RewardChoice& target);
  static Json write(const RewardChoice& value, const ValueRule& rule);
};

}  // namespace quench
