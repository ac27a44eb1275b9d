#include "train/objectives/grpo/run/policy_samples.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace quench {
namespace {

// Numbers of a completion that the ranks exchange.
struct Fact {
  double reward, length, cut;
};
constexpr std::size_t kFacts = sizeof(Fact) / sizeof(double);

bool has_all(std::span<const double> rewards) {
  return std::ranges::all_of(rewards, [](double reward) { return std::isfinite(reward); });
}

bool are_equal(std::span<const double> rewards) {
  return std::ranges::all_of(rewards, [&](double reward) { return reward == rewards.front(); });
}

// Adds the figures of a group, as sums; the rewards of groups that are used are appended to `kept`.
void add_group(std::span<const double> facts, RolloutFigures& figures, std::vector<double>& kept) {
  std::vector<double> rewards;
  for (std::size_t i = 0; i < facts.size(); i += kFacts) rewards.push_back(facts[i]);
  if (!has_all(rewards)) {
    figures.skipped += 1;
    return;
  }
  figures.zero_std += are_equal(rewards) ? 1 : 0;
  for (std::size_t i = 0; i < facts.size(); i += kFacts) {
    figures.reward += facts[i];
    figures.length += facts[i + 1];
    figures.cut += facts[i + 2];
  }
  kept.insert(kept.end(), rewards.begin(), rewards.end());
}

}  // namespace

PolicySamples judged_samples(const std::vector<RolloutPrompt>& prompts, std::vector<std::vector<Completion>> groups,
                             const std::vector<double>& rewards, const AdvantageOptions& options,
                             const RolloutRanks& ranks) {
  PolicySamples result;
  std::vector<double> facts;
  std::span<const double> rest = rewards;
  for (std::size_t p = 0; p < groups.size(); ++p) {
    const std::span<const double> own = rest.first(groups[p].size());
    rest = rest.subspan(groups[p].size());
    for (std::size_t g = 0; g < own.size(); ++g) {
      const Completion& completion = groups[p][g];
      const std::array<double, kFacts> fact = {own[g], static_cast<double>(completion.tokens.size()),
                                               completion.ended ? 0.0 : 1.0};
      facts.insert(facts.end(), fact.begin(), fact.end());
    }
    if (!has_all(own)) continue;
    const std::vector<double> advantages = group_advantages(own, options.baseline, options.scale);
    for (std::size_t g = 0; g < own.size(); ++g)
      result.samples.push_back({prompts[p].tokens, std::move(groups[p][g]), advantages[g]});
  }
  std::int64_t size = groups.empty() ? 0 : std::ssize(groups.front());
  distributed::all_reduce_numbers(*ranks.ranks->host, std::span(&size, 1), distributed::ReduceOp::max, "completions");
  const std::vector<double> all = ranks.gather(facts).all;
  const std::size_t group = static_cast<std::size_t>(size) * kFacts;
  RolloutFigures& figures = result.figures;
  std::vector<double> kept;
  double count = 0;
  for (std::size_t at = 0; at < all.size(); at += group, count += 1)
    add_group(std::span(all).subspan(at, group), figures, kept);
  const double deviation = deviation_of(kept), completions = std::max<double>(1, static_cast<double>(kept.size()));
  if (options.scale == RewardScale::batch)
    for (PolicySample& sample : result.samples) sample.advantage /= deviation + kDeviationFloor;
  for (double* figure : {&figures.reward, &figures.length, &figures.cut}) *figure /= completions;
  figures.reward_std = deviation;
  figures.zero_std /= std::max(1.0, count - figures.skipped);
  figures.skipped /= std::max(1.0, count);
  return result;
}

}  // namespace quench
