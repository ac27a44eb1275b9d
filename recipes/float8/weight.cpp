#include "recipes/float8/weight.h"

#include <utility>

#include "core/ops/quantize/transpose_codes.h"
#include "recipes/pad_and_bias.h"

namespace quench::recipes {
namespace {

Tensor padded(const Tensor& value, const Float8Gemms& gemms) {
  return zero_padded(value, gemms.size(value.size(0)), gemms.size(value.size(1)));
}

}  // namespace

nn::WeightFormats preferred_weight_formats(const Float8Uses& uses) {
  const auto format_of = [&](const std::optional<Float8Operand>& operand,
                             Granularity by_row) -> std::optional<autograd::WeightFormat> {
    if (!operand) return std::nullopt;
    return autograd::WeightFormat{operand->element,
                                  operand->scaling == Float8Scaling::tensor ? Granularity::tensor : by_row,
                                  uses.power_of_two_scales};
  };
  // Rowwise scales of W^T are columnwise scales of W.
  return {format_of(uses.rowwise, Granularity::row), format_of(uses.columnwise, Granularity::column)};
}

QuantOutputs known_amax(const nn::Parameter& parameter) {
  QuantOutputs known;
  if (parameter.amax.defined() && parameter.amax_version == parameter.version && parameter.version > 0)
    known.amax = parameter.amax;
  return known;
}

void Float8Weight::refresh(const nn::Parameter& parameter, const Tensor& value, bool rowwise_wanted,
                           bool columnwise_wanted) {
  const void* address = parameter.variable.value().raw_data();
  const bool current = valid_ && version_ == parameter.version && address_ == address;
  const bool rowwise_ready = !rowwise_wanted || !uses_.rowwise || matrix_.rowwise().defined();
  const bool columnwise_ready = !columnwise_wanted || !uses_.columnwise || matrix_.can_make_columnwise();
  if (current && rowwise_ready && columnwise_ready) return;
  Float8Uses uses = uses_;
  // Kept values serve both uses; otherwise an unrequested use is not made.
  if (!rowwise_wanted && !keep_) uses.rowwise.reset();
  if (!columnwise_wanted && !keep_) uses.columnwise.reset();
  matrix_ = Float8Matrix(value, uses, known_amax(parameter), keep_);
  version_ = parameter.version;
  address_ = address;
  valid_ = true;
}

Float8Weight::Operand Float8Weight::of_storage(const nn::Parameter& parameter, const Float8Gemms& gemms,
                                               const std::optional<autograd::WeightFormat>& format, Orientation wanted,
                                               Kept& kept) const {
  const autograd::Weight weight = parameter.weight();
  const Shape& shape = weight.shape();
  // Padding precedes quantization.
  if (!format || gemms.size(shape[0]) != shape[0] || gemms.size(shape[1]) != shape[1]) return {};
  if (kept.codes.defined() && kept.version == parameter.version) return {kept.codes, {}};
  const MemoryScope scope(keep_ ? MemoryCategory::parameters : MemoryCategory::workspace);
  autograd::Weight::AcquiredQuantized acquired = weight.acquire_quantized(*format, wanted);
  const QuantTensor codes = acquired.codes();
  if (!codes.defined() || !keep_) return {codes, std::move(acquired)};
  // Payload and scales that the storage made for this use are kept as they are, those in its own buffers as a copy.
  constexpr long kHandles = 2;  // `acquired` and `codes`
  const auto own = [](const Tensor& tensor) { return tensor.is_exclusive(kHandles) ? tensor : tensor.clone(); };
  kept = {QuantTensor(codes.format(), codes.shape(), codes.source_dtype(), own(codes.payload()), own(codes.scales())),
          parameter.version};
  return {kept.codes, {}};
}

Float8Weight::Operand Float8Weight::rowwise(const nn::Parameter& parameter, const Float8Gemms& gemms,
                                            bool columnwise_follows, const LayerHealth& health) {
  const autograd::Weight weight = parameter.weight();
  if (Operand stored =
          of_storage(parameter, gemms, preferred_weight_formats(uses_).forward, Orientation::natural, kept_rowwise_);
      stored.codes.defined()) {
    if (health.wants(LayerOperand::weight))
      health.record(LayerOperand::weight, weight.acquire().value(), stored.codes, stored.codes.shape().numel());
    return stored;
  }
  const autograd::Weight::Acquired use = weight.acquire();
  const Tensor value = padded(use.value(), gemms);
  QuantTensor codes = rowwise(parameter, value, columnwise_follows);
  health.record(LayerOperand::weight, value, codes, use.value().numel());
  return {std::move(codes), {}};
}

Float8Weight::Operand Float8Weight::columnwise(const nn::Parameter& parameter, const Float8Gemms& gemms) {
  if (Operand stored = of_storage(parameter, gemms, preferred_weight_formats(uses_).backward, Orientation::transposed,
                                  kept_columnwise_);
      stored.codes.defined()) {
    if (stored.codes.format().orientation == Orientation::natural)
      return {with_transposed_payload(stored.codes).transposed_view(), {}};
    stored.codes = stored.codes.transposed_view();
    return stored;
  }
  const autograd::Weight::Acquired use = parameter.weight().acquire();
  return {columnwise(parameter, padded(use.value(), gemms)), {}};
}

QuantTensor Float8Weight::rowwise(const nn::Parameter& parameter, const Tensor& value, bool columnwise_follows) {
  refresh(parameter, value, true, columnwise_follows);
  QuantTensor codes = matrix_.rowwise();
  if (!keep_) matrix_.drop_codes();
  return codes;
}

QuantTensor Float8Weight::columnwise(const nn::Parameter& parameter, const Tensor& value) {
  refresh(parameter, value, false, true);
  return matrix_.make_columnwise(value);
}

}  // namespace quench::recipes
