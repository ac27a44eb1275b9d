#include "train/setup/optimizer_setup.h"

#include <algorithm>

#include "distributed/fsdp/group_matrix_all_to_all.h"
#include "nn/optim/table.h"
#include "recipes/convert.h"

namespace quench {

namespace {

// By any Hugging Face name of the parameter's pieces.
std::function<bool(const nn::Parameter&)> matcher(const std::vector<std::string>& patterns) {
  return [patterns](const nn::Parameter& parameter) {
    return std::ranges::any_of(patterns, [&](const std::string& pattern) {
      return recipes::glob_matches(pattern, parameter.name) ||
             std::ranges::any_of(parameter.pieces, [&](const nn::ParameterPiece& piece) {
               return recipes::glob_matches(pattern, piece.hf_name);
             });
    });
  };
}

}  // namespace

std::unique_ptr<nn::Optimizer> make_optimizer(nn::CausalLm& model, const RunConfig& config,
                                              const distributed::Ranks* ranks) {
  const OptimizerSection& optimizer = config.optimizer;
  const nn::OptimizerOptions options{
      .beta1 = optimizer.betas[0],
      .beta2 = optimizer.betas[1],
      .eps = optimizer.eps,
      .weight_decay = optimizer.weight_decay,
      .scale_lr_multiplier = optimizer.lr > 0 ? config.recipe.scale_lr / optimizer.lr : 0,
      .state_dtype = optimizer.state,
      .master_weights = config.training.master_dtype.has_value(),
      .stochastic_rounding = optimizer.stochastic_rounding,
      .seed = static_cast<std::uint64_t>(config.training.seed),
      .exclude_from_decay = matcher(optimizer.decay_exclude),
      .momentum = optimizer.momentum,
      .nesterov = optimizer.nesterov,
      .exclude_from_muon = matcher(optimizer.muon_exclude),
      .rows = ranks != nullptr ? distributed::make_matrix_all_to_all(ranks->shard) : nullptr};
  return nn::make_optimizer(nn::find_optimizer(optimizer.name), model.parameters(), options);
}

}  // namespace quench
