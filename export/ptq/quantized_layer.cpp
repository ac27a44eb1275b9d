#include "export/ptq/quantized_layer.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/ops/elementwise.h"
#include "core/ops/packed_linear.h"
#include "core/ops/quantize/quantize.h"
#include "export/methods/rtn.h"
#include "export/ptq/quantize_inputs.h"
#include "export/schemes/kept_scales.h"
#include "nn/modules/linear.h"
#include "recipes/packed_linear.h"

namespace quench {
namespace {

nn::Linear* linear_of(nn::CausalLm& model, const nn::Parameter* weight) {
  nn::Linear* found = nullptr;
  model.visit([&](const std::string&, nn::Module& module) {
    if (auto* linear = dynamic_cast<nn::Linear*>(&module); linear != nullptr && &linear->weight() == weight)
      found = linear;
  });
  return found;
}

// By rows, if equally quantized; else undefined.
PackedMatrix packed_rows(std::span<const QuantizedLayer> layers) {
  std::vector<PackedMatrix> parts;
  for (const QuantizedLayer& layer : layers) {
    if (layer.tensor->quantized == nullptr || layer.choice.scheme->inputs != layers[0].choice.scheme->inputs) return {};
    parts.push_back(pack(*layer.tensor->quantized, layer.tensor->name));
    if (!parts.back().same_form(parts[0])) return {};
  }
  const MemoryScope scope(MemoryCategory::parameters);
  return concatenate_rows(parts);
}

// f32, on the CPU.
Tensor times(const Tensor& values, float factor) {
  const Tensor out = Tensor::empty(values.shape(), DType::f32);
  cast({values, out});
  for (std::int64_t i = 0; i < out.numel(); ++i) out.data<float>()[i] *= factor;
  return out;
}

// False for any factor of layers in files.
bool has_model_values(const QuantizedLayer& layer) {
  return layer.tensor->factor == 1.0f;
}

Tensor as_dtype(const Tensor& values, DType dtype) {
  const Tensor out = Tensor::empty(values.shape(), dtype);
  cast({values, out});
  return out;
}

Tensor in_values_dtype(const Tensor& values, const QuantizationRules& rules) {
  return rules.values_dtype.value_or(values.dtype()) == values.dtype() ? values : as_dtype(values, *rules.values_dtype);
}

bool all_zero(const Tensor& values) {
  bool zero = true;
  dispatch<float, bfloat16>(values.dtype(), "all_zero", [&]<class T>() {
    const T* x = values.data<T>();
    zero = std::all_of(x, x + values.numel(), [](T value) { return float(value) == 0.0f; });
  });
  return zero;
}

// Throws bad_config if all become zero.
void require_values(const Tensor& weight, const PackedMatrix& packed, const Scheme& scheme, std::string_view name) {
  const MemoryScope scope(MemoryCategory::workspace);
  constexpr std::int64_t kRows = 256;
  const Tensor values = Tensor::empty({std::min(kRows, packed.rows()), packed.columns()}, DType::f32);
  for (std::int64_t row = 0; row < packed.rows(); row += kRows) {
    const std::int64_t count = std::min(kRows, packed.rows() - row);
    unpack({packed.narrow_rows(row, count), values.narrow(0, 0, count)});
    if (!all_zero(values.narrow(0, 0, count))) return;
  }
  QUENCH_CHECK_AS(
      ErrorCode::bad_config, all_zero(weight),
      "{}: scheme {} rounds every value to 0; use a scheme of more bits or smaller groups, or keep the layer "
      "in high precision",
      name, scheme.name);
}

std::optional<float> scale_of_inputs(const QuantizedWeight& weight) {
  return weight.input_scale.defined() ? std::optional(weight.input_scale.data<float>()[0]) : std::nullopt;
}

}  // namespace

std::int64_t expert_of(const ModelTensor& tensor) {
  const std::int64_t experts = tensor.parameter->experts;
  return experts > 0 ? tensor.piece->row_begin / (tensor.parameter->global_shape[0] / experts) : 0;
}

std::span<QuantizedLayer> same_parameter(std::vector<QuantizedLayer>& layers, std::size_t first) {
  std::size_t end = first;
  while (end < layers.size() && layers[end].tensor->parameter == layers[first].tensor->parameter) ++end;
  return std::span(layers).subspan(first, end - first);
}

void share_amax(std::span<QuantizedLayer> group, const QuantizationRules& rules) {
  const MemoryScope scope(MemoryCategory::workspace);
  std::map<std::int64_t, float> most;  // by expert
  const auto two_levels = [](const QuantizedLayer& layer) {
    return layer.choice.scheme != nullptr && layer.choice.scheme->weights.scale == ScaleForm::e4m3_two_level;
  };
  for (const QuantizedLayer& layer : group)
    if (two_levels(layer)) {
      float& shared = most.try_emplace(expert_of(*layer.tensor), 0.0f).first->second;
      const float own = *amax(in_values_dtype(layer.tensor->value(), rules), Granularity::tensor).data<float>();
      shared = std::max(shared, own * std::abs(layer.tensor->factor));
    }
  for (QuantizedLayer& layer : group)
    if (two_levels(layer)) layer.shared_amax = most.at(expert_of(*layer.tensor));
}

Tensor weight_of(const QuantizedLayer& layer, const QuantizationRules& rules) {
  const Tensor weight = in_values_dtype(layer.tensor->value(), rules);
  return has_model_values(layer) ? weight : times(weight, layer.tensor->factor);
}

void quantize_layer(QuantizedLayer& layer, const QuantizationRules& rules, const InputStatistics* inputs,
                    std::span<const float> importance) {
  ModelTensor& tensor = *layer.tensor;
  layer.report = {.layer = tensor.layer, .kept_because = layer.choice.kept_because};
  layer.report.bytes = layer.report.dense_bytes =
      static_cast<std::uint64_t>(tensor.shape.numel() * byte_size(tensor.dtype));
  const Scheme* scheme = layer.choice.scheme;
  if (scheme == nullptr) return;
  const Tensor weight = weight_of(layer, rules);
  const Quantizer& quantizer = rules.quantizer != nullptr ? *rules.quantizer : quantizers().front();
  Tensor scales = rules.scales && scheme == rules.scheme ? rules.scales(tensor) : Tensor();
  if (tensor.factor != 1.0f && scales.defined()) scales = times(scales, tensor.factor);
  std::shared_ptr<QuantizedWeight> quantized = std::exchange(layer.tuned, nullptr);
  const bool tuned = quantized != nullptr;
  if (!tuned)
    quantized = std::make_shared<QuantizedWeight>(
        scales.defined() ? round_under_scales(weight, scheme->weights, scales, tensor.name, rules.scale_dtype)
                         : quantizer.quantize({weight, scheme->weights, tensor.name, rules.scale_dtype, inputs,
                                               rules.options, layer.shared_amax, importance, rules.device}));
  if (!tuned && rules.block_scales && scheme->weights.scale == ScaleForm::e8m0)
    keep_block_scales(weight, rules.block_scales(tensor), *quantized);
  // Exact: the stored dtype is wider.
  Tensor& kept = quantized->scales;
  if (!rules.scale_dtype && kept.defined() && kept.dtype() == weight.dtype() && kept.dtype() != tensor.dtype)
    kept = as_dtype(kept, tensor.dtype);
  if (scheme->inputs && needs_input_scale(*scheme->inputs) && inputs != nullptr)
    quantized->input_scale = Tensor::from_values<float>(
        {1}, std::array{input_scale(*scheme->inputs, layer.input_amax.value_or(inputs->amax()))});
  layer.report.scheme = scheme->name;
  const PackedMatrix packed = pack(*quantized, tensor.name);
  layer.report.sqnr = signal_to_noise(weight, packed);
  require_values(weight, packed, *scheme, tensor.name);
  layer.report.bytes = quantized->nbytes();
  tensor.scheme = scheme;
  tensor.quantized = std::move(quantized);
}

void use_quantized(nn::CausalLm& model, std::span<const QuantizedLayer> layers) {
  nn::Parameter& parameter = *layers[0].tensor->parameter;
  nn::Linear* linear = linear_of(model, &parameter);
  const PackedMatrix packed =
      linear != nullptr && layers.size() == parameter.pieces.size() && std::ranges::all_of(layers, has_model_values)
          ? packed_rows(layers)
          : PackedMatrix();
  const DType dtype = model.options().dtype;
  if (packed.defined()) {
    const auto& inputs = layers[0].choice.scheme->inputs;
    return recipes::use_packed_weight(
        *linear, packed.to(model.options().device), dtype,
        inputs ? input_rounding(*inputs, parameter.name, scale_of_inputs(*layers[0].tensor->quantized))
               : recipes::InputRounding());
  }
  const MemoryScope scope(MemoryCategory::workspace);
  for (const QuantizedLayer& layer : layers) {
    if (layer.tensor->quantized == nullptr) continue;
    Tensor values = Tensor::empty(layer.tensor->shape, has_model_values(layer) ? dtype : DType::f32);
    unpack({pack(*layer.tensor->quantized, layer.tensor->name), values});
    if (!has_model_values(layer)) values = as_dtype(times(values, 1 / layer.tensor->factor), dtype);
    parameter.variable.value().narrow(0, layer.tensor->piece->row_begin, layer.tensor->piece->rows).copy_from(values);
  }
  parameter.mark_changed();
}

}  // namespace quench
