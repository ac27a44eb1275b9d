#include "train/session/learned_scales.h"

#include <algorithm>
#include <cmath>

#include "core/json/json_member.h"
#include "core/ops/elementwise.h"
#include "core/system/log.h"
#include "nn/modules/linear.h"
#include "train/check/load.h"
#include "train/config/recipe_choice.h"

namespace quench {
namespace {

Tensor in_f32(const Tensor& scales) {
  const Tensor host = scales.to(Device{});
  if (host.dtype() == DType::f32) return host;
  const Tensor wide = Tensor::empty(host.shape(), DType::f32);
  cast({host, wide});
  return wide;
}

// `row`: of the first local scale.
void require_positive(const Tensor& scales, std::string_view weight, std::int64_t row, std::string_view source) {
  const auto* values = scales.data<float>();
  const auto* end = values + scales.numel();
  const auto* bad = std::find_if(values, end, [](float x) { return !(x > 0) || !std::isfinite(x); });
  if (bad == end) return;
  const std::int64_t at = bad - values, groups = scales.size(1);
  QUENCH_FAIL(ErrorCode::nonfinite, "{}{}: the learned scale of row {}, group {} is {}, expected a positive number",
              source.empty() ? "" : fmt::format("{}: ", source), weight, row + at / groups, at % groups, *bad);
}

template <class Visit>
void visit_scales(nn::CausalLm& model, const Visit& visit) {
  model.visit([&](const std::string&, nn::Module& module) {
    if (auto* linear = dynamic_cast<nn::Linear*>(&module))
      if (const nn::Parameter* scales = linear->kernel().weight_scales()) visit(*linear, *scales);
  });
}

}  // namespace

void LearnedScales::choose_in(QuantizationRules& rules) const {
  if (scheme == nullptr) return;
  const bool nearest = rules.quantizer == nullptr || rules.quantizer == &quantizers().front();
  if (rules.scheme != scheme || !nearest) {
    QUENCH_LOG_WARN("the run has learned scales for {} only; those of {}{} follow from the weights", scheme->name,
                    rules.scheme->name, nearest ? "" : fmt::format(" under {}", rules.quantizer->name));
    return;
  }
  rules.scales = [rows = rows](const ModelTensor& tensor) {
    const auto found = rows.find(tensor.parameter->name);
    return found == rows.end() ? Tensor() : found->second.narrow(0, tensor.piece->row_begin, tensor.piece->rows);
  };
}

LearnedScales stored_scales(CheckpointReader& reader, const std::string& source) {
  LearnedScales scales;
  const Json* learned = find_member(reader.state().config, {"recipe", "learned_scales"});
  if (learned == nullptr || !learned->is_bool() || !learned->as_bool()) return scales;
  scales.scheme =
      simulated_scheme(run_config_from_json(reader.state().config, source, {}, {.data = false, .files = false}));
  constexpr std::string_view kOptimizer = "optimizer.", kSuffix = "_scale";
  const MemoryScope scope(MemoryCategory::parameters);
  for (const TensorRecord& record : reader.manifest().tensors) {
    if (record.name.starts_with(kOptimizer) || !record.name.ends_with(kSuffix)) continue;
    const std::string weight = record.name.substr(0, record.name.size() - kSuffix.size());
    const Tensor stored = Tensor::empty(record.shape, record.dtype);
    reader.read(record.name, stored);
    const Tensor values = in_f32(stored);
    require_positive(values, weight, 0, source);
    scales.rows.emplace(weight, values);
  }
  return scales;
}

LearnedScales trained_scales(nn::CausalLm& model, const RunConfig& config,
                             const std::function<Tensor(const nn::Parameter&)>& whole) {
  LearnedScales scales;
  if (!config.recipe.learned_scales) return scales;
  scales.scheme = simulated_scheme(config);
  const MemoryScope scope(MemoryCategory::parameters);
  visit_scales(model, [&](nn::Linear& linear, const nn::Parameter& own) {
    const Tensor values = in_f32(whole ? whole(own) : own.variable.value());
    require_positive(values, linear.weight().name, 0, {});
    scales.rows.emplace(linear.weight().name, values.clone());
  });
  return scales;
}

void begin_learned_scales(nn::CausalLm& model) {
  model.visit([](const std::string&, nn::Module& module) {
    if (auto* linear = dynamic_cast<nn::Linear*>(&module)) linear->kernel().begin_with(linear->weight());
  });
}

void require_positive_scales(nn::CausalLm& model) {
  const MemoryScope scope(MemoryCategory::workspace);
  visit_scales(model, [&](nn::Linear& linear, const nn::Parameter& scales) {
    const Tensor rows = scales.variable.value();
    if (rows.numel() > 0) require_positive(in_f32(rows), linear.weight().name, scales.shard.row_begin, {});
  });
}

}  // namespace quench
