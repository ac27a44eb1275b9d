#include "export/budget/output_divergence.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/ops/elementwise.h"
#include "core/ops/loss/distillation_loss.h"
#include "core/ops/packed_linear.h"
#include "export/methods/rtn.h"

namespace quench {

OutputDivergence::OutputDivergence(nn::CausalLm& model, const CalibrationData& data, std::int64_t most_tokens)
    : model_(model) {
  for (const std::vector<std::int32_t>& sequence : data.sequences) {
    if (!sequences_.empty() && tokens_ + std::ssize(sequence) > most_tokens) break;
    sequences_.push_back(sequence);
    tokens_ += std::ssize(sequence);
  }
  const MemoryScope scope(MemoryCategory::activations);
  for (std::size_t s = 0; s < sequences_.size(); ++s) reference_.push_back(logits(s));
}

Tensor OutputDivergence::logits(std::size_t sequence) const {
  const autograd::NoGrad no_grad;
  const std::vector<std::int32_t>& ids = sequences_[sequence];
  const auto tokens = std::ssize(ids);
  const Tensor on_device = Tensor::from_values<std::int32_t>({tokens}, ids).to(model_.options().device);
  return model_.logits(model_.hidden(on_device, model_.make_context({{0, tokens, 0, tokens}}, tokens)));
}

double OutputDivergence::measure() const {
  const MemoryScope scope(MemoryCategory::activations);
  double sum = 0;
  for (std::size_t s = 0; s < sequences_.size(); ++s) {
    const Tensor now = logits(s);
    const Shape rows{now.size(0)};
    const Device device = now.device();
    const Tensor labels = Tensor::zeros(rows, DType::i32, device);
    const Tensor losses = Tensor::empty(rows, DType::f32, device), entropies = Tensor::empty(rows, DType::f32, device),
                 divergences = Tensor::empty(rows, DType::f32, device);
    distillation_loss({.logits = now,
                       .target = {.logits = reference_[s]},
                       .labels = labels,
                       .losses = losses,
                       .cross_entropies = entropies,
                       .divergences = divergences});
    const Tensor host = divergences.to(Device{});
    for (std::int64_t row = 0; row < host.numel(); ++row) sum += static_cast<double>(host.data<float>()[row]);
  }
  return std::isfinite(sum) ? sum / static_cast<double>(tokens_) : std::numeric_limits<double>::infinity();
}

TriedWeights::~TriedWeights() {
  for (const auto& [tensor, values] : originals_) put(*tensor, values);
}

void TriedWeights::put(const ModelTensor& tensor, const Tensor& values) {
  nn::Parameter& parameter = *tensor.parameter;
  parameter.variable.value().narrow(0, tensor.piece->row_begin, tensor.piece->rows).copy_from(values);
  parameter.mark_changed();
}

void TriedWeights::set(const ModelTensor& tensor, const Scheme* scheme, const QuantizationRules& rules,
                       std::span<const float> importance) {
  auto found = std::ranges::find(originals_, &tensor, &Original::tensor);
  const nn::Parameter& parameter = *tensor.parameter;
  if (found == originals_.end())
    found = originals_.insert(
        originals_.end(),
        {&tensor,
         parameter.variable.value().narrow(0, tensor.piece->row_begin, tensor.piece->rows).to(Device{}).clone()});
  if (scheme == nullptr) return put(tensor, found->values);
  const MemoryScope scope(MemoryCategory::workspace);
  const QuantizedWeight rounded =
      rtn(found->values, scheme->weights, tensor.name, rules.scale_dtype, {}, importance, rules.device);
  const Tensor values = Tensor::empty(tensor.shape, found->values.dtype());
  unpack({pack(rounded, tensor.name), values});
  put(tensor, values);
}

}  // namespace quench
