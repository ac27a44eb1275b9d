#include "export/ptq/collect_imatrix.h"

#include <algorithm>

#include "export/imatrix/importance.h"
#include "export/ptq/fuse_scales.h"
#include "export/ptq/layer_walk.h"
#include "export/ptq/observers.h"
#include "nn/modules/linear_kernel.h"

namespace quench {
namespace {

void add_to(ImatrixEntry& entry, std::int64_t expert, std::int64_t experts, const InputStatistics& inputs) {
  const std::int64_t width = inputs.columns();
  entry.counts.resize(static_cast<std::size_t>(experts));
  entry.sums.resize(static_cast<std::size_t>(experts * width));
  entry.counts[static_cast<std::size_t>(expert)] = static_cast<float>(inputs.rows());
  const double* squares = inputs.squares().data<double>();
  std::transform(squares, squares + width, entry.sums.begin() + expert * width,
                 [](double sum) { return static_cast<float>(sum); });
}

}  // namespace

Imatrix collect_imatrix(nn::CausalLm& model, const std::vector<ModelTensor>& tensors, const QuantizationRules& rules) {
  const CalibrationData& data = *rules.calibration;
  Imatrix matrix{.entries = {},
                 .datasets = {data.source},
                 .chunks = static_cast<std::int64_t>(data.sequences.size()),
                 .chunk_size = static_cast<std::int64_t>(data.sequences.front().size())};
  const auto gather = [&](std::int64_t layer) {
    if (!rules.gather_unit) return;
    for (const nn::CausalLm::Unit& unit : model.units())
      if (unit.layer == layer) rules.gather_unit(unit.parameters);
  };
  const ModuleMap modules = modules_of(model);
  for (const auto& [name, module] : modules) {  // recipe kernels would change inputs
    if (auto* linear = dynamic_cast<nn::Linear*>(module)) linear->set_kernel(nn::high_precision_linear_kernel());
    if (auto* experts = dynamic_cast<nn::ExpertLinear*>(module))
      experts->set_kernel(nn::high_precision_expert_kernel());
  }
  LayerWalk walk(model, data.sequences);
  for (std::int64_t layer = 0; layer < walk.layers(); ++layer) {
    gather(layer);
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    InputObservers observers(false);
    for (const auto& [name, module] : modules) {
      if (!name.starts_with(prefix)) continue;
      if (auto* linear = dynamic_cast<nn::Linear*>(module)) observers.observe(name, *linear);
      if (auto* experts = dynamic_cast<nn::ExpertLinear*>(module)) observers.observe(name, *experts);
    }
    walk.advance();
    for (const ModelTensor& tensor : tensors) {
      if (!tensor.layer.starts_with(prefix)) continue;
      const auto name = matrix_name(tensor, model.config());
      if (!name) continue;
      const std::int64_t expert = matrix_of(tensor), experts = std::max<std::int64_t>(tensor.parameter->experts, 1);
      add_to(matrix.entries[*name], expert, experts, observers.of(*tensor.parameter, expert));
    }
  }
  return matrix;
}

}  // namespace quench
