#pragma once
// Exponential moving average (EMA) of weights, as an optimizer around another one.

#include <memory>
#include <vector>

#include "core/ops/optimizer/weight_average.h"
#include "nn/optim/optimizer.h"

namespace quench::nn {

// Exponential moving average of the parameters of an optimizer: a = a + (1 - decay) (w - a) after each update, begun as
// w (core/ops/optimizer/weight_average.h). Its state is that of the optimizer and "optimizer.ema.<parameter>".
class WeightAverage final : public Optimizer {
 public:
  struct Options {
    double decay = 0.999;      // in (0, 1)
    DType dtype = DType::f32;  // f32, or bf16 with stochastic rounding
    std::uint64_t seed = 0;    // seed of the rounding, with the parameter's name, the step and the element
    bool host_state = false;   // as OptimizerOptions::host_state
  };
  WeightAverage(std::unique_ptr<Optimizer> optimizer, const Options& options);

  using Optimizer::step;
  void step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) override;
  // Begins the averages as the parameters, rounded to nearest.
  void refresh_master() override;
  [[nodiscard]] std::vector<StateTensor> state() override;
  [[nodiscard]] std::vector<ParameterState> parameter_states() override;

  // Overwrites the parameters with their averages, rounded to nearest.
  void use() const;

  [[nodiscard]] static std::string name_of(const Parameter& parameter);

 private:
  [[nodiscard]] std::vector<KeptTensor> kept(std::size_t) override { return {}; }

  std::unique_ptr<Optimizer> optimizer_;
  Options options_;
  std::vector<AveragedTensor> tensors_;  // by parameters() index
};

}  // namespace quench::nn
