#include "train/objectives/grpo/run/policy_samples.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace quench {
namespace {

// Numbers of a completion that the ranks exchange: total reward, length, whether it was cut, and the single rewards.
constexpr std::size_t kPartFacts = 3;

bool has_all(std::span<const double> rewards) {
  return std::ranges::all_of(rewards, [](double reward) { return std::isfinite(reward); });
}

bool are_equal(std::span<const double> rewards) {
  return std::ranges::all_of(rewards, [&](double reward) { return reward == rewards.front(); });
}

// Sums over groups of completions with `width` numbers each.
class FigureSums {
 public:
  explicit FigureSums(std::size_t width) : width_(width), parts_(width - kPartFacts) {}

  void add_group(std::span<const double> facts) {
    groups_ += 1;
    std::vector<double> rewards;
    for (std::size_t i = 0; i < facts.size(); i += width_) rewards.push_back(facts[i]);
    if (!has_all(rewards)) {
      sums_.skipped += 1;
      return;
    }
    sums_.zero_std += are_equal(rewards) ? 1 : 0;
    for (std::size_t i = 0; i < facts.size(); i += width_) {
      sums_.reward += facts[i];
      sums_.length += facts[i + 1];
      sums_.cut += facts[i + 2];
      for (std::size_t p = 0; p < parts_.size(); ++p)
        if (const double part = facts[i + kPartFacts + p]; std::isfinite(part)) parts_[p].push_back(part);
    }
    rewards_.insert(rewards_.end(), rewards.begin(), rewards.end());
  }

  [[nodiscard]] RolloutFigures figures() const {
    RolloutFigures figures = sums_;
    const double completions = std::max<double>(1, static_cast<double>(rewards_.size()));
    for (double* figure : {&figures.reward, &figures.length, &figures.cut}) *figure /= completions;
    figures.reward_std = deviation_of(rewards_);
    figures.zero_std /= std::max(1.0, groups_ - figures.skipped);
    figures.skipped /= std::max(1.0, groups_);
    for (const std::vector<double>& part : parts_) {
      const double sum = std::accumulate(part.begin(), part.end(), 0.0);
      figures.part_means.push_back(sum / static_cast<double>(part.size()));  // NaN of none
      figures.part_stds.push_back(part.empty() ? figures.part_means.back() : deviation_of(part));
    }
    return figures;
  }

 private:
  std::size_t width_;
  RolloutFigures sums_;
  double groups_ = 0;
  std::vector<double> rewards_;
  std::vector<std::vector<double>> parts_;
};

}  // namespace

PolicySamples judged_samples(const std::vector<RolloutPrompt>& prompts, std::vector<std::vector<Completion>> groups,
                             const RewardScores& scores, const AdvantageOptions& options, const RolloutRanks& ranks) {
  PolicySamples result;
  std::vector<double> facts;
  std::size_t first = 0;  // first completion of the group
  for (std::size_t p = 0; p < groups.size(); first += groups[p].size(), ++p) {
    const std::span<const double> own = std::span(scores.total).subspan(first, groups[p].size());
    for (std::size_t g = 0; g < own.size(); ++g) {
      const Completion& completion = groups[p][g];
      facts.insert(facts.end(), {own[g], static_cast<double>(completion.tokens.size()), completion.ended ? 0.0 : 1.0});
      for (const std::vector<double>& part : scores.parts) facts.push_back(part[first + g]);
    }
    if (!has_all(own)) continue;
    const std::vector<double> advantages = group_advantages(own, options.baseline, options.scale);
    for (std::size_t g = 0; g < own.size(); ++g)
      result.samples.push_back({prompts[p].tokens, std::move(groups[p][g]), advantages[g]});
  }
  std::int64_t size = groups.empty() ? 0 : std::ssize(groups.front());
  distributed::all_reduce_numbers(*ranks.ranks->host, std::span(&size, 1), distributed::ReduceOp::max, "completions");
  const std::vector<double> all = ranks.gather(facts).all;
  const std::size_t width = kPartFacts + scores.parts.size(), group = static_cast<std::size_t>(size) * width;
  FigureSums sums(width);
  for (std::size_t at = 0; at < all.size(); at += group) sums.add_group(std::span(all).subspan(at, group));
  result.figures = sums.figures();
  if (options.scale == RewardScale::batch)
    for (PolicySample& sample : result.samples) sample.advantage /= result.figures.reward_std + kDeviationFloor;
  return result;
}

}  // namespace quench
