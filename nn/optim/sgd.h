#pragma once
// SGD with momentum (core/ops/optimizer/sgd.h) over a model's parameters.

#include <vector>

#include "core/ops/optimizer/sgd.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/optimizer_options.h"

namespace quench::nn {

class Sgd final : public Optimizer {
 public:
  // Momentum, where asked for, starts at zero; master weights as for AdamW.
  Sgd(const std::vector<Parameter*>& parameters, OptimizerOptions options);

  using Optimizer::step;
  void step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) override;

 private:
  [[nodiscard]] std::vector<KeptTensor> kept(std::size_t index) override;

  OptimizerOptions options_;
  double momentum_;
  std::vector<SgdTensor> tensors_;  // of parameters()
};

}  // namespace quench::nn
