#include "train/objectives/grpo/run/policy_loss.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/system/check.h"

namespace quench {
namespace {

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// -min(r A, clip(r) A) of a ratio r, with its derivative by log r.
struct ClippedTerm {
  double loss = 0, derivative = 0;
  bool low = false, high = false;  // clipped there
};

ClippedTerm clipped_term(double log_ratio, double advantage, const PolicyLossOptions& options) {
  const double ratio = std::exp(log_ratio), low = 1 - options.epsilon_low, high = 1 + options.epsilon_high;
  const double plain = ratio * advantage, bounded = std::clamp(ratio, low, high) * advantage;
  ClippedTerm term{.loss = -std::min(plain, bounded)};
  term.low = ratio < low && advantage < 0;
  term.high = ratio > high && advantage > 0;
  if (!term.low && !term.high) term.derivative = -plain;
  return term;
}

}  // namespace

PolicyTerms policy_loss(const PolicyLossOptions& options, const PolicyTokens& tokens) {
  const std::size_t count = tokens.logps.size();
  QUENCH_CHECK(
      count > 0 && tokens.old.size() == count && (tokens.reference.empty() || tokens.reference.size() == count),
      "policy_loss: {} log-probabilities, {} old ones, {} of the reference", count, tokens.old.size(),
      tokens.reference.size());
  double weight = 1;
  if (options.type == PolicyLossType::grpo) weight = 1 / static_cast<double>(count);
  if (options.type == PolicyLossType::dr_grpo) weight = 1 / static_cast<double>(options.max_completion_length);
  const double sequence_ratio = mean_of(tokens.logps) - mean_of(tokens.old);
  PolicyTerms terms;
  terms.derivatives.resize(count);
  for (std::size_t t = 0; t < count; ++t) {
    const double log_ratio = tokens.logps[t] - tokens.old[t];
    const ClippedTerm term = clipped_term(options.level == ImportanceLevel::sequence ? sequence_ratio : log_ratio,
                                          tokens.advantage, options);
    // The mean over tokens has derivatives 1 / count, of count equal terms.
    double loss = term.loss, derivative = term.derivative;
    if (!tokens.reference.empty()) {
      const double d = tokens.reference[t] - tokens.logps[t];
      const double divergence = std::exp(d) - d - 1;
      terms.divergence += divergence;
      loss += options.beta * divergence;
      derivative += options.beta * (1 - std::exp(d));
    }
    terms.loss += weight * loss;
    terms.derivatives[t] = weight * derivative;
    terms.clipped_low += term.low ? 1 : 0;
    terms.clipped_high += term.high ? 1 : 0;
    terms.difference += std::abs(log_ratio);
  }
  return terms;
}

double deviation_of(std::span<const double> values) {
  if (values.size() < 2) return 0;
  const double mean = mean_of(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

std::vector<double> group_advantages(std::span<const double> rewards, RewardBaseline baseline, RewardScale scale) {
  std::vector<double> advantages(rewards.size(), 0.0);
  if (std::ranges::all_of(rewards, [&](double reward) { return reward == rewards.front(); })) return advantages;
  const auto count = static_cast<double>(rewards.size());
  const double mean = mean_of(rewards), deviation = deviation_of(rewards);
  // reward - (sum - reward) / (count - 1)
  double factor = baseline == RewardBaseline::leave_one_out ? count / (count - 1) : 1;
  if (scale == RewardScale::group) factor /= deviation + kDeviationFloor;
  for (std::size_t i = 0; i < rewards.size(); ++i) advantages[i] = factor * (rewards[i] - mean);
  return advantages;
}

}  // namespace quench
