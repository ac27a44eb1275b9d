#pragma once
// Training steps of the run's model reduced to a few layers and a small vocabulary: end-to-end gain of a recipe.

#include <memory>

#include "data/sampling/loader.h"
#include "nn/decoder/causal_lm.h"
#include "recipes/convert.h"
#include "train/config/run_config.h"
#include "train/probe/timing.h"

namespace quench {

struct ShortModelSize {
  std::int64_t layers = 2;
  std::int64_t vocabulary = 1024;
};

[[nodiscard]] nn::ModelConfig cut_model(nn::ModelConfig model, const ShortModelSize& size);

// The batch with token ids < `vocabulary`.
[[nodiscard]] Batch cut_vocabulary(const Batch& batch, std::int64_t vocabulary, Device device);

class ShortModel {
 public:
  // Random weights. `batch` has ids of the reduced vocabulary; a step accumulates `micro_batches` of it.
  ShortModel(const RunConfig& config, const nn::ModelConfig& cut, Batch batch, std::int64_t micro_batches,
             Device device);

  // Milliseconds per training step, including the optimizer.
  [[nodiscard]] double milliseconds(const recipes::Recipe& recipe, const recipes::LayerFilter& filter,
                                    const TimingOptions& timing);

 private:
  const RunConfig& config_;
  Device device_;
  std::unique_ptr<nn::CausalLm> model_;
  std::vector<Batch> batches_;
};

}  // namespace quench
