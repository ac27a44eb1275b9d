#pragma once
// Several optimizers, each for a part of the parameters: matrices here, vectors there.

#include <functional>
#include <memory>
#include <vector>

#include "nn/optim/optimizer.h"

namespace quench::nn {

class CompositeOptimizer final : public Optimizer {
 public:
  // Of `parameters`, those that `belongs` picks go to the first optimizer, the others to the second.
  using Make = std::function<std::unique_ptr<Optimizer>(const std::vector<Parameter*>&)>;
  CompositeOptimizer(const std::vector<Parameter*>& parameters, const std::function<bool(const Parameter&)>& belongs,
                     const Make& first, const Make& second);

  using Optimizer::step;
  void step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) override;
  void refresh_master() override;
  // That of the first, then that of the second.
  [[nodiscard]] std::vector<StateTensor> state() override;
  [[nodiscard]] std::vector<ParameterState> parameter_states() override;

 private:
  [[nodiscard]] std::vector<KeptTensor> kept(std::size_t) override { return {}; }  // the parts keep everything
  static constexpr int kParts = 2;
  // What a range of parameters() is among those of a part: both are in the same order.
  [[nodiscard]] ParameterRange within(int which, ParameterRange range) const {
    return {before_[which][range.begin], before_[which][range.end]};
  }

  std::unique_ptr<Optimizer> parts_[kParts];
  std::vector<std::size_t> before_[kParts];  // for each place in parameters(): how many of the part are before it
};

}  // namespace quench::nn
