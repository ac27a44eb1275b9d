#include "train/setup/optimizer_setup.h"

#include <algorithm>

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

}  // namespace quench
