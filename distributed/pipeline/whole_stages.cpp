#include "distributed/pipeline/whole_stages.h"

#include <map>
#include <string>

#include "distributed/fsdp/gather_parameter.h"

namespace quench::distributed {

void with_whole_model(nn::CausalLm& model, const Ranks& ranks,
                      const std::function<void(nn::CausalLm& all, const nn::WholeRows& whole)>& work) {
  if (ranks.mesh.pipeline == 1)
    return with_whole_parameters(model.parameters(), ranks, [&](const nn::WholeRows& whole) { work(model, whole); });
  nn::CausalLm all(model.config(), {.dtype = model.options().dtype, .device = Device{DeviceType::meta}});
  std::map<std::string, const nn::Parameter*> own;
  for (const nn::Parameter* parameter : model.parameters())
    if (!parameter->stage_copy) own.emplace(parameter->name, parameter);
  // Stage of each parameter.
  const std::vector<nn::Parameter*> parameters = all.parameters();
  std::map<std::string, std::size_t> places;
  std::vector<std::int64_t> stages;
  for (const nn::Parameter* parameter : parameters) {
    places.emplace(parameter->name, stages.size());
    stages.push_back(own.contains(parameter->name) ? ranks.stage() : 0);
  }
  all_reduce_numbers(*ranks.host, stages, ReduceOp::max, "stages of parameters");
  const nn::WholeRows gather = [&](const nn::Parameter& parameter) {
    const auto stage = static_cast<int>(stages[places.at(parameter.name)]);
    const MemoryScope scope(MemoryCategory::workspace);
    const Tensor rows = stage == ranks.stage()
                            ? gather_parameter(*own.at(parameter.name), ranks)
                            : Tensor::empty(parameter.global_shape, model.options().dtype, model.options().device);
    ranks.pipeline->broadcast(rows, stage, parameter.name).wait();
    return rows;
  };
  with_whole_parameters(
      parameters, ranks, [&](const nn::WholeRows& whole) { work(all, whole); }, gather);
}

}  // namespace quench::distributed
