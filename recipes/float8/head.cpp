#include "recipes/float8/head.h"

#include <utility>

#include "core/ops/gemm.h"
#include "core/ops/quantize/transpose_codes.h"
#include "recipes/pad_and_bias.h"

namespace quench::recipes {

void Float8Head::expect_hidden_gradients(bool expected) {
  hidden_gradients_ = expected;
  if (!gemms_.scheme().forward) return;
  make_weight();
  if (!expected) weight_.reset();  // wgrad does not read it
}

void Float8Head::make_weight() {
  if (std::exchange(weight_made_, true)) return;
  const MemoryScope scope(MemoryCategory::workspace);
  Float8Uses uses = gemms_.weight_uses();
  if (!hidden_gradients_) uses.columnwise.reset();
  // Both orientations at once (tensorwise: from one read of the weight).
  weight_codes_ = Float8Matrix(weight_->value(), uses, known_, hidden_gradients_);
  health_.record(LayerOperand::weight, weight_->value(), weight_codes_.rowwise(), weight_->value().numel());
  if (hidden_gradients_ && weight_codes_.columnwise().defined()) weight_.reset();
}

void Float8Head::logits(const Tensor& hidden, const Tensor& out) {
  const auto& forward = gemms_.scheme().forward;
  if (!forward) return gemm({.a = hidden, .b = weight_->value(), .c = out, .transpose_b = true});
  const MemoryScope scope(MemoryCategory::workspace);
  make_weight();
  const Float8Matrix codes(hidden, gemms_.input_uses(false), {}, false);
  health_.record(LayerOperand::input, hidden, codes.rowwise(), hidden.numel());
  gemms_.multiply(codes.rowwise(), weight_codes_.rowwise(), out, 0.0f, *forward);
}

QuantTensor Float8Head::gradient_codes(const Shape& shape, DType source, float bound) {
  const auto& [name, forward, dgrad, wgrad, power_of_two] = gemms_.scheme();
  if (!dgrad || !wgrad || dgrad->left.scaling != Float8Scaling::tensor ||
      wgrad->left.scaling != Float8Scaling::tensor || dgrad->left.element != wgrad->left.element)
    return {};
  const ElementFormat element = dgrad->left.element;
  if (!bound_.defined()) {
    bound_ = Tensor::from_values({}, std::span<const float>(&bound, 1)).to(device_);
    bound_scale_ = float8_scale(bound_, element, power_of_two, source);
  }
  if (rounding_.key || health_.wants(LayerOperand::output_gradient) || gemms_.size(shape[0]) != shape[0]) return {};
  const QuantFormat format = code_format(element, Granularity::tensor);
  return {format, shape, source, Tensor::empty(shape, payload_dtype(element), bound_.device()), bound_scale_};
}

void Float8Head::gradients(const Tensor& dlogits, const Tensor& hidden, const Tensor& dhidden, const Tensor& dweight,
                           float beta) {
  const auto& [name, forward, dgrad, wgrad, power_of_two] = gemms_.scheme();
  const MemoryScope scope(MemoryCategory::workspace);
  // wgrad reduces over the rows: zero-padded.
  const std::int64_t rows = gemms_.size(dlogits.size(0));
  const Tensor source = zero_padded(dlogits, rows, dlogits.size(1));
  // Both orientations from one read, or, scaled by rows and by columns, one after the other.
  const bool one_read = !wgrad || wgrad->left.scaling == Float8Scaling::tensor;
  Float8Matrix codes(source, gemms_.gradient_uses(dhidden.defined(), dweight.defined()), {.amax = bound_}, one_read,
                     rounding_);
  rounding_.first_row += static_cast<std::uint64_t>(dlogits.size(0));
  health_.record(LayerOperand::output_gradient, source, codes.rowwise(), dlogits.numel(), rounding_.key.has_value());
  if (dhidden.defined()) {
    if (dgrad)
      hidden_gradient(codes.rowwise(), dhidden);
    else
      gemm({.a = dlogits, .b = weight_->value(), .c = dhidden});
  }
  if (!dweight.defined()) return;
  codes.drop_rowwise();
  if (wgrad)
    weight_gradient(codes.make_columnwise(source), hidden, dweight, beta);
  else
    gemm({.a = dlogits, .b = hidden, .c = dweight, .transpose_a = true, .beta = beta});
}

void Float8Head::gradients_of_codes(const QuantTensor& dlogits, const Tensor& hidden, const Tensor& dhidden,
                                    const Tensor& dweight, float beta) {
  const MemoryScope scope(MemoryCategory::workspace);
  if (dhidden.defined()) hidden_gradient(dlogits, dhidden);
  if (dweight.defined()) weight_gradient(with_transposed_payload(dlogits).transposed_view(), hidden, dweight, beta);
}

// dlogits [rows, V], zero-padded.
void Float8Head::hidden_gradient(const QuantTensor& dlogits, const Tensor& dhidden) {
  if (!weight_made_) weight_codes_ = Float8Matrix(weight_->value(), gemms_.weight_uses(), known_, false);
  weight_made_ = true;
  if (!weight_codes_.columnwise().defined()) weight_codes_.keep_columnwise(weight_->value());
  const std::int64_t rows = dlogits.shape()[0];
  const Tensor whole =
      rows == dhidden.size(0) ? dhidden : Tensor::empty({rows, dhidden.size(1)}, dhidden.dtype(), dhidden.device());
  gemms_.multiply(dlogits, weight_codes_.columnwise(), whole, 0.0f, *gemms_.scheme().dgrad);
  if (rows != dhidden.size(0)) Tensor(dhidden).copy_from(whole.narrow(0, 0, dhidden.size(0)));
}

// dlogits [V, rows], K-major, zero-padded.
void Float8Head::weight_gradient(const QuantTensor& dlogits, const Tensor& hidden, const Tensor& dweight, float beta) {
  Float8Uses uses = gemms_.input_uses(true);
  uses.rowwise.reset();
  const Float8Matrix input(zero_padded(hidden, dlogits.shape()[1], hidden.size(1)), uses, {}, true);
  gemms_.multiply(dlogits, input.columnwise(), dweight, beta, *gemms_.scheme().wgrad);
}

}  // namespace quench::recipes
