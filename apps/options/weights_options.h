#pragma once
// Weights of a run other than those of its newest checkpoint.

#include <cstdint>
#include <string>
#include <vector>

#include "apps/common.h"

namespace quench {

struct WeightsOptions {
  std::vector<std::int64_t> steps;  // mean of these; empty: one checkpoint
  std::string weights = "final";    // or kAveragedWeights

  [[nodiscard]] bool given() const { return !steps.empty() || weights != "final"; }
};

// Throws bad_config if `source` is no run or checkpoint, or has no such steps or averages.
void require_weights(const std::filesystem::path& source, const WeightsOptions& options);

// load_model() with these weights: means of parameters in f32, adapters' A and B each; averages of training.ema_decay.
[[nodiscard]] LoadedModel load_weights_of(const std::filesystem::path& source, const std::string& device,
                                          const std::string& dtype, const WeightsOptions& options, MtpLayers mtp);

}  // namespace quench
