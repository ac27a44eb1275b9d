#pragma once
// How the tokens of some passes spread over the experts of each layer, kept on the device until somebody asks.

#include <array>
#include <vector>

#include "core/ops/experts/router.h"
#include "core/tensor/tensor.h"

namespace quench::nn {

class ExpertLoad {
 public:
  // `layers`: all of the model, of which those with experts report.
  ExpertLoad(std::int64_t layers, std::int64_t experts, Device device);

  // Forgets everything.
  void reset();
  // Adds a pass of a layer: counts f32 [E] of its pairs; for logits f32 [N,E], if defined, also the two terms of the
  // router's loss.
  void add(std::int64_t layer, const Tensor& counts, const Tensor& logits);

  // Sums of what one of `ranks` processes has seen, for whoever adds those of the others to them in place; from then on
  // read() is of all of them.
  [[nodiscard]] std::array<Tensor, 2> sums_of(int ranks) {
    ranks_ = ranks;
    return {counts_, losses_};
  }
  // f32 [E]: the pairs of a layer's experts.
  [[nodiscard]] Tensor counts(std::int64_t layer) const { return counts_.select(0, layer); }

  // What one layer has seen since reset().
  struct Layer {
    std::int64_t layer = 0;
    std::vector<double> share;  // of the pairs, by expert; sums to 1
    double balance = 0;  // mean over passes of the balance term (core/ops/experts/router.h); 1 * k where loads are even
    double z = 0;        // likewise
    // Load of the busiest expert over the mean.
    [[nodiscard]] double imbalance() const;
  };
  // Of the layers that reported, in order. Waits for the device.
  [[nodiscard]] std::vector<Layer> read() const;

 private:
  Tensor counts_;            // f32 [layers,E]
  Tensor losses_;            // f32 [layers,2]
  std::vector<int> passes_;  // of this process
  int ranks_ = 1;            // whose sums these are
};

}  // namespace quench::nn
