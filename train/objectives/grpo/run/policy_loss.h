#pragma once
// Policy loss of one sampled completion with its derivatives, in f64, as TRL's GRPOTrainer defines it (trl 1.16):
// clipped ratios, the divergence exp(d) - d - 1 with d = reference - logp, and the normalizations of PolicyLossType.

#include <cstdint>
#include <span>
#include <vector>

#include "train/objectives/grpo/grpo_section.h"

namespace quench {

struct PolicyLossOptions {
  PolicyLossType type = PolicyLossType::dapo;
  ImportanceLevel level = ImportanceLevel::token;
  double beta = 0;
  double epsilon_low = 0.2, epsilon_high = 0.2;
  std::int64_t max_completion_length = 1;  // dr_grpo
};

// Log-probabilities of a completion's tokens, at least one.
struct PolicyTokens {
  std::span<const double> logps;      // log-probabilities of the model in training
  std::span<const double> old;        // when they were sampled
  std::span<const double> reference;  // empty: none, and no divergence
  double advantage = 0;
};

struct PolicyTerms {
  // The step's loss is the sum over completions, divided by their number (grpo, dr_grpo) or that of all tokens (dapo).
  double loss = 0;
  std::vector<double> derivatives;  // derivatives of `loss` by each of `logps`
  // Sums over tokens: divergence, ratios below and above the bounds that the advantage asked to pass, |logp - old|.
  double divergence = 0, clipped_low = 0, clipped_high = 0, difference = 0;
};

[[nodiscard]] PolicyTerms policy_loss(const PolicyLossOptions& options, const PolicyTokens& tokens);

// Advantages of a group's rewards, without the scale of the batch: reward minus baseline, with RewardScale::group
// divided by the standard deviation (of n - 1) plus 1e-4. Equal rewards: zeros.
[[nodiscard]] std::vector<double> group_advantages(std::span<const double> rewards, RewardBaseline baseline,
                                                   RewardScale scale);
// Standard deviation of n - 1; 0 for one value.
[[nodiscard]] double deviation_of(std::span<const double> values);
inline constexpr double kDeviationFloor = 1e-4;  // added to a deviation that divides

}  // namespace quench
