#pragma once
// Multiplicative updates of learned scales, which must stay positive.

#include <functional>
#include <memory>
#include <vector>

#include "core/ops/optimizer/multiplicative_update.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/optimizer_options.h"

namespace quench::nn {

// Wraps an optimizer that gets the gradients, and zeros as values: its steps are relative, without weight decay.
class MultiplicativeUpdates final : public Optimizer {
 public:
  using Make = std::function<std::unique_ptr<Optimizer>(const std::vector<Parameter*>&)>;
  // Learning rate scaled by options.scale_lr_multiplier. Master weights as in AdamW.
  MultiplicativeUpdates(const std::vector<Parameter*>& parameters, OptimizerOptions options, const Make& make);

  using Optimizer::step;
  void step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) override;
  [[nodiscard]] std::vector<StateTensor> state() override;
  [[nodiscard]] std::vector<ParameterState> parameter_states() override;

 private:
  [[nodiscard]] std::vector<KeptTensor> kept(std::size_t index) override;

  OptimizerOptions options_;
  std::vector<MultiplicativeUpdateTensor> tensors_;    // by parameters() index
  std::vector<std::unique_ptr<Parameter>> relatives_;  // by parameters() index: updated by the inner optimizer
  std::unique_ptr<Optimizer> steps_;
};

}  // namespace quench::nn
