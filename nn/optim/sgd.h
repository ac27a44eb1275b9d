#pragma once
// Stochastic gradient descent with weight decay and optional momentum; arithmetic as core/ops/optimizer/sgd.h.

#include <vector>

#include "core/ops/optimizer/sgd.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/optimizer_options.h"

namespace quench::nn {

class Sgd final : public Optimizer {
 public:
  // Momentum, if any, starts at zero; master weights as in AdamW.
  Sgd(const std::vector<Parameter*>& parameters, OptimizerOptions options);

  using Optimizer::step;
  void step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) override;

 private:
  [[nodiscard]] std::vector<KeptTensor> kept(std::size_t index) override;

  OptimizerOptions options_;
  double momentum_;
  std::vector<SgdTensor> tensors_;  // by parameters() index
};

}  // namespace quench::nn
