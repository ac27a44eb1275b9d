#pragma once
// AdamW optimizer.

#include <vector>

#include "core/ops/optimizer/adamw.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/optimizer_options.h"

namespace quench::nn {

// AdamW (Loshchilov and Hutter, 2019, arXiv:1711.05101); arithmetic as core/ops/optimizer/adamw.h.
class AdamW final : public Optimizer {
 public:
  // Moments start at zero, master weights at the parameters' values: construct after initialisation or loading.
  AdamW(const std::vector<Parameter*>& parameters, OptimizerOptions options);

  using Optimizer::step;
  void step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) override;

 private:
  [[nodiscard]] std::vector<KeptTensor> kept(std::size_t index) override;

  OptimizerOptions options_;
  std::vector<AdamWTensor> tensors_;  // by parameters() index
};

}  // namespace quench::nn
