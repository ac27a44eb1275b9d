#pragma once
// Parameters that move by factors (core/ops/optimizer/multiplicative_update.h): learned scales, which must stay
// positive and differ in size from tensor to tensor.

#include <functional>
#include <memory>
#include <vector>

#include "core/ops/optimizer/multiplicative_update.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/optimizer_options.h"

namespace quench::nn {

// Another optimizer makes the steps, with the parameters' gradients, and sees zeros in place of the parameters: its
// steps are the relative ones, and nothing is decayed. Its state is the parameters', and is named after them.
class MultiplicativeUpdates final : public Optimizer {
 public:
  using Make = std::function<std::unique_ptr<Optimizer>(const std::vector<Parameter*>&)>;
  // Steps are made at options.scale_lr_multiplier times the learning rate. Master weights as for AdamW.
  MultiplicativeUpdates(const std::vector<Parameter*>& parameters, OptimizerOptions options, const Make& make);

  using Optimizer::step;
  void step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) override;
  [[nodiscard]] std::vector<StateTensor> state() override;
  [[nodiscard]] std::vector<ParameterState> parameter_states() override;

 private:
  [[nodiscard]] std::vector<KeptTensor> kept(std::size_t index) override;

  OptimizerOptions options_;
  std::vector<MultiplicativeUpdateTensor> tensors_;    // of parameters()
  std::vector<std::unique_ptr<Parameter>> relatives_;  // of parameters(): what the other optimizer updates
  std::unique_ptr<Optimizer> steps_;
};

}  // namespace quench::nn
