#pragma once
// AdamW with 8-bit or 4-bit moments.

#include <vector>

#include "core/ops/optimizer/low_bit_adamw.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/optimizer_options.h"

namespace quench::nn {

// True for matrices of at least 4096 elements whose rows are whole quantization blocks. Decided on the global shape:
// independent of sharding.
[[nodiscard]] bool has_low_bit_moments(const Parameter& parameter, MomentFormat format);

class LowBitAdamW final : public Optimizer {
 public:
  // All parameters must be eligible; moments start at zero.
  LowBitAdamW(const std::vector<Parameter*>& parameters, MomentFormat format, OptimizerOptions options);

  using Optimizer::step;
  void step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) override;

 private:
  [[nodiscard]] std::vector<KeptTensor> kept(std::size_t index) override;

  MomentFormat format_;
  OptimizerOptions options_;
  std::vector<LowBitAdamWTensor> tensors_;  // by parameters() index
};

}  // namespace quench::nn
