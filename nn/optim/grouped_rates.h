#pragma once
// Learning rates per parameter group (optimizer.groups).

#include <memory>
#include <vector>

#include "nn/optim/optimizer.h"

namespace quench::nn {

// Learning rates by parameter, over an optimizer of the same parameters, whose state it shows as its own.
class GroupedRates final : public Optimizer {
 public:
  // `scales`: of the learning rate, by index in optimizer->parameters().
  GroupedRates(std::unique_ptr<Optimizer> optimizer, std::vector<double> scales);

  using Optimizer::step;
  // One step of the optimizer for each run of parameters with equal scales.
  void step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) override;
  void refresh_master() override { optimizer_->refresh_master(); }
  [[nodiscard]] std::vector<StateTensor> state() override { return optimizer_->state(); }
  [[nodiscard]] std::vector<ParameterState> parameter_states() override { return optimizer_->parameter_states(); }

 private:
  [[nodiscard]] std::vector<KeptTensor> kept(std::size_t) override { return {}; }

  std::unique_ptr<Optimizer> optimizer_;
  std::vector<double> scales_;
};

}  // namespace quench::nn
