#pragma once
// Two optimizers as one, each with its part of the parameters, such as Muon for matrices and AdamW for the rest.

#include <functional>
#include <memory>
#include <vector>

#include "nn/optim/optimizer.h"

namespace quench::nn {

class CompositeOptimizer final : public Optimizer {
 public:
  // `belongs` selects the first optimizer's parameters.
  using Make = std::function<std::unique_ptr<Optimizer>(const std::vector<Parameter*>&)>;
  CompositeOptimizer(const std::vector<Parameter*>& parameters, const std::function<bool(const Parameter&)>& belongs,
                     const Make& first, const Make& second);

  using Optimizer::step;
  void step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) override;
  void refresh_master() override;
  [[nodiscard]] std::vector<StateTensor> state() override;
  [[nodiscard]] std::vector<ParameterState> parameter_states() override;

 private:
  [[nodiscard]] std::vector<KeptTensor> kept(std::size_t) override { return {}; }
  static constexpr int kParts = 2;
  [[nodiscard]] ParameterRange within(int which, ParameterRange range) const {
    return {before_[which][range.begin], before_[which][range.end]};
  }

  std::unique_ptr<Optimizer> parts_[kParts];
  std::vector<std::size_t> before_[kParts];  // number of preceding parameters of the part
};

}  // namespace quench::nn
