#pragma once
// Rewards of a run, added up by their weights.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "core/number/dtype.h"
#include "train/objectives/grpo/rewards/reward.h"

namespace quench {

struct RewardScores {
  std::vector<double> total;               // by sample: the weighted sum of those that are there; NaN without any
  std::vector<std::vector<double>> parts;  // by reward, then by sample; NaN: none
};

class RewardSet {
 public:
  struct Part {
    std::string name;
    double weight = 1;
    std::unique_ptr<Reward> reward;
  };
  // The section's rewards; throws bad_config.
  explicit RewardSet(const GrpoSection& section);
  explicit RewardSet(std::vector<Part> parts) : parts_(std::move(parts)) {}

  [[nodiscard]] std::vector<std::string> names() const;
  // Reward::open() of each.
  void open(Device device, DType dtype);
  // Reward::plan() of each.
  void plan(std::int64_t samples, std::int64_t tokens) const;
  // Throws as Reward::score().
  [[nodiscard]] RewardScores score(std::span<const RewardSample> samples) const;

 private:
  std::vector<Part> parts_;
};

}  // namespace quench
