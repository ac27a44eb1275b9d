#include "train/setup/frozen_model.h"

#include <set>

#include "distributed/fsdp/gather_parameter.h"
#include "train/model_folder/model_folder.h"
#include "train/setup/model_setup.h"
#include "train/setup/parallel_setup.h"

namespace quench {
namespace {

using recipes::BaseForm;

void fill_frozen(FrozenModel& frozen, const RunConfig& config, const FrozenWeights& source,
                 const distributed::Ranks* ranks) {
  nn::CausalLm& model = *frozen.model;
  if (source.form == BaseForm::stored) {
    load_base(model, source.folder, [&](nn::Parameter& weight, const PackedMatrix& codes) {
      frozen.base->keep(weight, codes.to(model.options().device), model.options().dtype);
    });
    return;
  }
  const std::vector<nn::Parameter*> weights = recipes::quantizable_weights(model);
  const std::set<const nn::Parameter*> quantizable(weights.begin(), weights.end());
  const auto quantize = [&](nn::Parameter& parameter) {
    if (source.form != BaseForm::dense && quantizable.contains(&parameter)) frozen.base->store(parameter, source.form);
  };
  if (model.options().device.is_meta()) {
    for (nn::Parameter* parameter : model.parameters()) {
      materialize(*parameter);
      quantize(*parameter);
    }
    return;
  }
  const nn::ParameterFilled filled = ranks == nullptr ? nn::ParameterFilled(quantize) : nn::ParameterFilled();
  if (source.folder.empty())
    fill_model(model, config, filled);
  else
    load_weights(model, source.folder, false, filled);
  if (ranks != nullptr)
    frozen.base->store(model, source.form, [ranks](const nn::Parameter& parameter) {
      return distributed::gather_parameter(parameter, *ranks);
    });
}

}  // namespace

FrozenModel make_frozen_model(const RunConfig& config, const nn::ModelConfig& architecture,
                              const FrozenWeights& weights, Device device, const distributed::Ranks* ranks) {
  nn::ParameterOptions options = parameter_options(config, device);
  const ModelSharding sharding = run_sharding(ranks);
  options.sharding = sharding.sharding;
  options.expert_sharding = sharding.experts;
  options.trainable = false;
  options.deferred = weights.form != BaseForm::dense && ranks == nullptr;
  FrozenModel frozen;
  frozen.model = std::make_unique<nn::CausalLm>(architecture, options);
  frozen.base = std::make_unique<recipes::QuantizedBase>();
  fill_frozen(frozen, config, weights, ranks);
  RunConfig sharded = config;
  sharded.parallel.reshard_after_forward = true;  // no backward pass
  sharded.parallel.float8_all_gather = false;
  frozen.sharded = share_model(*frozen.model, ranks, sharded, frozen.base.get());
  return frozen;
}

}  // namespace quench
