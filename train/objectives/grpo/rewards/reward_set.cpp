#include "train/objectives/grpo/rewards/reward_set.h"

#include <cmath>
#include <limits>

#include "train/objectives/grpo/grpo_section.h"

namespace quench {

RewardSet::RewardSet(const GrpoSection& section) {
  for (const auto& [name, weight] : section.rewards.weights)
    parts_.push_back({name, weight, reward_table().require(name).make(section)});
}

std::vector<std::string> RewardSet::names() const {
  std::vector<std::string> names;
  for (const Part& part : parts_) names.push_back(part.name);
  return names;
}

void RewardSet::open(Device device, DType dtype) {
  for (const Part& part : parts_) part.reward->open(device, dtype);
}

void RewardSet::plan(std::int64_t samples, std::int64_t tokens) const {
  for (const Part& part : parts_) part.reward->plan(samples, tokens);
}

RewardScores RewardSet::score(std::span<const RewardSample> samples) const {
  RewardScores scores{.total = std::vector<double>(samples.size(), std::numeric_limits<double>::quiet_NaN()),
                      .parts = std::vector<std::vector<double>>(parts_.size())};
  if (samples.empty()) return scores;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    std::vector<double>& own = scores.parts[p] = parts_[p].reward->score(samples);
    QUENCH_CHECK(own.size() == samples.size(), "reward {}: {} numbers for {} completions", parts_[p].name, own.size(),
                 samples.size());
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (!std::isfinite(own[i])) continue;
      double& total = scores.total[i];
      total = (std::isnan(total) ? 0 : total) + parts_[p].weight * own[i];
    }
  }
  return scores;
}

}  // namespace quench
