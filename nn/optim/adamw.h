#pragma once
// AdamW over a model's parameters: owns the moments and, where asked, f32 master weights.

#include <vector>

#include "core/ops/optimizer/adamw.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/optimizer_options.h"

namespace quench::nn {

class AdamW final : public Optimizer {
 public:
  // Moments start at zero, master weights from the parameters' current values: create it after initialisation or
  // loading. Frozen parameters are skipped.
  AdamW(const std::vector<Parameter*>& parameters, OptimizerOptions options);

  using Optimizer::step;
  using Optimizer::zero_grad;
  void step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) override;
  void zero_grad(ParameterRange part) override;
  // Copies the parameters' values into the master weights.
  void refresh_master() override;
  // "optimizer.exp_avg.<parameter>", "optimizer.exp_avg_sq.<parameter>" and "optimizer.master.<parameter>".
  [[nodiscard]] std::vector<StateTensor> state() const override;
  [[nodiscard]] std::vector<ParameterState> parameter_states() override;

 private:
  OptimizerOptions options_;
  std::vector<AdamWTensor> tensors_;  // of parameters()
};

}  // namespace quench::nn
