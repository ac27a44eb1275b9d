#include "nn/mlp.h"

#include <cmath>

#include "autograd/functions.h"

namespace quench::nn {

Mlp::Mlp(const ModelConfig& config, const ParameterOptions& options)
    : gate_up_proj_(config.hidden_size, 2 * config.intermediate_size, config.mlp_bias, options,
                    config.initializer_range,
                    {{"gate_proj", config.intermediate_size}, {"up_proj", config.intermediate_size}}),
      down_proj_(config.intermediate_size, config.hidden_size, config.mlp_bias, options,
                 config.initializer_range / std::sqrt(2.0f * static_cast<float>(config.num_hidden_layers))) {
  add_module("gate_up_proj", gate_up_proj_);
  add_module("down_proj", down_proj_);
}

Variable Mlp::forward(const Variable& x) const {
  return down_proj_.forward(autograd::swiglu(gate_up_proj_.forward(x), down_proj_.input_request()));
}

}  // namespace quench::nn
