#include "train/session/optimizer_setup.h"

#include <functional>

#include "distributed/fsdp/group_matrix_all_to_all.h"
#include "nn/optim/grouped_rates.h"
#include "nn/optim/table.h"
#include "nn/optim/weight_average.h"
#include "train/session/trained_parameters.h"

namespace quench {

namespace {

std::function<bool(const nn::Parameter&)> matcher(const std::vector<std::string>& patterns) {
  return [patterns](const nn::Parameter& parameter) { return matches_any(patterns, parameter); };
}

}  // namespace

std::unique_ptr<nn::Optimizer> make_optimizer(nn::CausalLm& model, const RunConfig& config,
                                              const distributed::Ranks& ranks) {
  const OptimizerSection& optimizer = config.optimizer;
  const auto groups = std::make_shared<const ParameterGroups>(model, optimizer);
  const nn::OptimizerOptions options{
      .beta1 = optimizer.betas[0],
      .beta2 = optimizer.betas[1],
      .eps = optimizer.eps,
      .weight_decay = optimizer.weight_decay,
      .scale_lr_multiplier = optimizer.lr > 0 ? config.recipe.scale_lr / optimizer.lr : 0,
      .state_dtype = optimizer.state,
      .master_weights = config.training.master_dtype.has_value(),
      .split_master = config.training.master_split,
      .stochastic_rounding = optimizer.stochastic_rounding,
      .seed = static_cast<std::uint64_t>(config.training.seed),
      .exclude_from_decay = matcher(optimizer.decay_exclude),
      .group_decay = [groups](const nn::Parameter& parameter) { return groups->weight_decay(parameter); },
      .momentum = optimizer.momentum,
      .nesterov = optimizer.nesterov,
      .exclude_from_muon = matcher(optimizer.muon_exclude),
      .rows = ranks.is_single() ? nullptr : distributed::make_matrix_all_to_all(ranks.shard),
      .host_state = optimizer.offload_streamed};
  auto made = nn::make_optimizer(nn::find_optimizer(optimizer.name), model.parameters(), options);
  if (groups->scales()) {
    std::vector<double> scales;
    for (const nn::Parameter* parameter : made->parameters()) scales.push_back(groups->lr_scale(*parameter));
    made = std::make_unique<nn::GroupedRates>(std::move(made), std::move(scales));
  }
  if (const auto decay = config.training.ema_decay)
    made = std::make_unique<nn::WeightAverage>(std::move(made),
                                               nn::WeightAverage::Options{.decay = *decay,
                                                                          .dtype = config.training.ema_dtype,
                                                                          .seed = options.seed,
                                                                          .host_state = options.host_state});
  return made;
}

}  // namespace quench
