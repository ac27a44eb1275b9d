#include "train/session/whole_model.h"

#include <map>
#include <string>

namespace quench {

WholeModel::WholeModel(nn::CausalLm& model) : model_(model) {
  if (model.options().tensor.count == 1 && model.is_whole()) return;
  nn::ParameterOptions options;
  options.dtype = model.options().dtype;
  options.device = Device{DeviceType::meta};
  options.trainable = false;
  described_ = std::make_unique<nn::CausalLm>(model.config(), options);
}

nn::WholeRows WholeModel::rows(nn::CausalLm& held, nn::WholeRows whole) const {
  if (!described_) return whole;
  std::map<std::string, const nn::Parameter*> slices;
  for (const nn::Parameter* parameter : held.parameters()) slices.emplace(parameter->name, parameter);
  return [slices = std::move(slices), whole = std::move(whole)](const nn::Parameter& parameter) {
    return whole(*slices.at(parameter.name));
  };
}

}  // namespace quench
