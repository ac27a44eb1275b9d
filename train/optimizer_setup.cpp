#include "train/optimizer_setup.h"

#include <algorithm>
#include <cmath>

#include "core/ops/global_norm.h"
#include "nn/optim/adamw.h"
#include "recipes/convert.h"

namespace quench {

std::unique_ptr<nn::Optimizer> make_optimizer(nn::CausalLm& model, const RunConfig& config) {
  nn::AdamWOptions options;
  options.beta1 = config.optimizer.betas[0];
  options.beta2 = config.optimizer.betas[1];
  options.eps = config.optimizer.eps;
  options.weight_decay = config.optimizer.weight_decay;
  options.state_dtype = config.optimizer.state;
  options.master_weights = config.training.master_dtype.has_value();
  options.stochastic_rounding = config.optimizer.stochastic_rounding;
  options.seed = static_cast<std::uint64_t>(config.training.seed);
  options.exclude_from_decay = [patterns = config.optimizer.decay_exclude](const nn::Parameter& parameter) {
    return std::ranges::any_of(patterns, [&](const std::string& pattern) {
      return recipes::glob_matches(pattern, parameter.name) ||
             std::ranges::any_of(parameter.pieces, [&](const nn::ParameterPiece& piece) {
               return recipes::glob_matches(pattern, piece.hf_name);
             });
    });
  };
  return std::make_unique<nn::AdamW>(model.parameters(), std::move(options));
}

double state_offload_ratio(const RunConfig& config, Device device) {
  const double ratio = config.optimizer.offload_ratio;
  QUENCH_CHECK_AS(ErrorCode::bad_config, ratio == 0 || !device.is_cpu(),
                  "optimizer.offload_ratio is {}, but a CPU run's state is in host memory; set it to 0", ratio);
  return ratio;
}

std::string first_nonfinite_gradient(nn::CausalLm& model) {
  const Tensor square = Tensor::empty({1}, DType::f64, model.options().device);
  for (const nn::Parameter* parameter : model.parameters()) {
    const Tensor gradient = parameter->variable.grad();
    if (!gradient.defined()) continue;
    squared_norm({.tensors = std::span(&gradient, 1), .result = square});
    if (!std::isfinite(*square.to(Device{}).data<double>())) return parameter->name;
  }
  return {};
}

}  // namespace quench
