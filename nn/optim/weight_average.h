#pragma once

#include <memory>
#include <vector>

#include "nn/optim/optimizer.h"

namespace quench::nn {

// Exponential moving average of the parameters of an optimizer: a = decay a + (1 - decay) w in f32 after each update,
// begun as w. Its state is that of the optimizer and "optimizer.ema.<parameter>".
class WeightAverage final : public Optimizer {
 public:
  // `decay` in (0, 1).
  WeightAverage(std::unique_ptr<Optimizer> optimizer, double decay);

  using Optimizer::step;
  void step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) override;
  // Begins the averages as the parameters.
  void refresh_master() override;
  [[nodiscard]] std::vector<StateTensor> state() override;
  [[nodiscard]] std::vector<ParameterState> parameter_states() override;

  // Overwrites the parameters with their averages, rounded to nearest.
  void use() const;

  [[nodiscard]] static std::string name_of(const Parameter& parameter);

 private:
  [[nodiscard]] std::vector<KeptTensor> kept(std::size_t) override { return {}; }

  std::unique_ptr<Optimizer> optimizer_;
  float decay_;
  std::vector<Tensor> averages_;  // f32, by parameters() index
};

}  // namespace quench::nn
