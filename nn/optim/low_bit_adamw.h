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
  void step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) override;

 private:
  [[nodiscard]] std::vector<KeptTensor> kept(std::size_t index) override;

  MomentFormat format_;
  OptimizerOptions options_;
  std::vector<LowBitAdamWTensor> tensors_;  // of parameters()
};

}  // namespace quench::nn
