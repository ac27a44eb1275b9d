#pragma once
// Training steps of a model that is the run's, cut to a few layers and a small vocabulary: what a recipe gains as a
// whole, with all that stands between the layers.

#include <memory>

#include "data/sampling/loader.h"
#include "nn/causal_lm.h"
#include "recipes/convert.h"
#include "train/config/run_config.h"
#include "train/probe/timing.h"

namespace quench {

struct ShortModelSize {
  std::int64_t layers = 2;
  std::int64_t vocabulary = 1024;
};

[[nodiscard]] nn::ModelConfig cut_model(nn::ModelConfig model, const ShortModelSize& size);

// The same batch with token ids below `vocabulary`.
[[nodiscard]] Batch cut_vocabulary(const Batch& batch, std::int64_t vocabulary, Device device);

class ShortModel {
 public:
  // Random weights. `batch` has ids of the cut vocabulary; a step accumulates over `micro_batches` of it.
  ShortModel(const RunConfig& config, const nn::ModelConfig& cut, Batch batch, std::int64_t micro_batches,
             Device device);

  // Milliseconds of a training step, optimizer included.
  [[nodiscard]] double milliseconds(const recipes::Recipe& recipe, const recipes::LayerFilter& filter,
                                    const TimingOptions& timing);

 private:
  const RunConfig& config_;
  Device device_;
  std::unique_ptr<nn::CausalLm> model_;
  std::vector<Batch> batches_;
};

}  // namespace quench
