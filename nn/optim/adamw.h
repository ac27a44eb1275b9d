#pragma once
// AdamW over a model's parameters: owns the moments and, where asked, f32 master weights.

#include <functional>
#include <vector>

#include "core/ops/adamw.h"
#include "nn/optim/optimizer.h"

namespace quench::nn {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  DType state_dtype = DType::f32;   // f32 or bf16 moments
  bool master_weights = false;      // keep an f32 copy of bf16 parameters
  bool stochastic_rounding = true;  // where bf16 parameters without master, or bf16 moments, are written
  std::uint64_t seed = 0;
  // Parameters (by name) that are not decayed; empty: all are.
  std::function<bool(const Parameter&)> exclude_from_decay;
};

class AdamW final : public Optimizer {
 public:
  // Moments start at zero, master weights from the parameters' current values: create it after initialisation or
  // loading. Frozen parameters are skipped.
  AdamW(const std::vector<Parameter*>& parameters, AdamWOptions options);

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
  AdamWOptions options_;
  std::vector<AdamWTensor> tensors_;  // of parameters()
};

}  // namespace quench::nn
