#pragma once
// Training steps of the run's model reduced to a few layers and a small vocabulary: end-to-end gain of a recipe.

#include <string_view>
#include <vector>

#include "data/sampling/loader.h"
#include "nn/spec/model_config.h"
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

// Training sessions of the short model, with random weights and without adapters, offloading and objectives.
class ShortModel {
 public:
  // `batch` has ids of the reduced vocabulary; a step accumulates `micro_batches` of it.
  ShortModel(const RunConfig& config, nn::ModelConfig cut, const Batch& batch, std::int64_t micro_batches,
             Device device);

  // Milliseconds per training step, including the optimizer, of a model of its own.
  [[nodiscard]] double milliseconds(std::string_view recipe, const recipes::LayerFilter& filter,
                                    const TimingOptions& timing) const;

 private:
  RunConfig config_;
  nn::ModelConfig cut_;
  Device device_;
  std::vector<Batch> batches_;
};

}  // namespace quench
