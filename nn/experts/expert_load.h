#pragma once
// Expert load statistics, accumulated on the device.

#include <array>
#include <vector>

#include "core/ops/experts/router.h"
#include "core/tensor/tensor.h"

namespace quench::nn {

class ExpertLoad {
 public:
  ExpertLoad(std::int64_t layers, std::int64_t experts, Device device);

  void reset();
  // Adds a pass: counts f32 [E] of pairs; with logits f32 [N,E], if defined, the balance and z terms of the router
  // loss.
  void add(std::int64_t layer, const Tensor& counts, const Tensor& logits);

  // For an all-reduce in place; read() is global afterwards.
  [[nodiscard]] std::array<Tensor, 2> sums() const { return {counts_, losses_}; }
  // f32 [E]: pairs per expert.
  [[nodiscard]] Tensor counts(std::int64_t layer) const { return counts_.select(0, layer); }

  struct Layer {
    std::int64_t layer = 0;
    std::vector<double> share;  // sums to 1
    double balance = 0;         // mean of the balance term (core/ops/experts/router.h); 1 * k under even load
    double z = 0;
    // Maximum expert load over mean load.
    [[nodiscard]] double imbalance() const;
  };
  // Synchronises with the device.
  [[nodiscard]] std::vector<Layer> read() const;

 private:
  Tensor counts_;  // f32 [layers,E]
  Tensor losses_;  // f32 [layers,3]: balance, z, passes, whose number may differ between ranks
  Tensor one_;     // f32 [1]
};

}  // namespace quench::nn
