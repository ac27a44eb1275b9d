#pragma once
// AdamW with moments of 8 or 4 bits (core/ops/optimizer/low_bit_adamw.h), for the matrices that can have them.

#include <vector>

#include "core/ops/optimizer/low_bit_adamw.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/optimizer_options.h"

namespace quench::nn {

// Whether a parameter's moments can be codes: a matrix of at least 4096 elements whose rows are whole blocks. The
// global shape decides, so that shards of whole rows have the codes of the whole.
[[nodiscard]] bool has_low_bit_moments(const Parameter& parameter, MomentFormat format);

class LowBitAdamW final : public Optimizer {
 public:
  // All of the parameters can have such moments; they start at zero. Otherwise as AdamW.
  LowBitAdamW(const std::vector<Parameter*>& parameters, MomentFormat format, OptimizerOptions options);

  using Optimizer::step;
  using Optimizer::zero_grad;
  void step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) override;
  void zero_grad(ParameterRange part) override;
  void refresh_master() override;
  // "optimizer.exp_avg.codes.<parameter>", "optimizer.exp_avg.scales.<parameter>", the same of exp_avg_sq, and
  // "optimizer.master.<parameter>". Axis 0 of each is that of the parameter.
  [[nodiscard]] std::vector<StateTensor> state() const override;
  [[nodiscard]] std::vector<ParameterState> parameter_states() override;

 private:
  MomentFormat format_;
  OptimizerOptions options_;
  std::vector<LowBitAdamWTensor> tensors_;  // of parameters()
};

}  // namespace quench::nn
