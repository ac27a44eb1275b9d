#include "recipes/float8/head.h"

#include "core/ops/gemm.h"

namespace quench::recipes {

void Float8Head::logits(const Tensor& hidden, const Tensor& out) {
  const auto& forward = products_.scheme().forward;
  if (!forward) return gemm({.a = hidden, .b = weight_.value(), .c = out, .transpose_b = true});
  const MemoryScope scope(MemoryCategory::workspace);
  if (!weight_made_) {
    Float8Uses uses = products_.weight_uses();
    if (!training_) uses.columnwise.reset();
    weight_codes_ = Float8Matrix(weight_.value(), uses, known_, false);
    weight_made_ = true;
    health_.record(LayerOperand::weight, weight_.value(), weight_codes_.rowwise(), weight_.value().numel());
  }
  const Float8Matrix codes(hidden, products_.input_uses(false), {}, false);
  health_.record(LayerOperand::input, hidden, codes.rowwise(), hidden.numel());
  products_.multiply(codes.rowwise(), weight_codes_.rowwise(), out, 0.0f, *forward);
}

void Float8Head::gradients(const Tensor& dlogits, const Tensor& hidden, const Tensor& dhidden, const Tensor& dweight,
                           float beta) {
  const auto& [name, forward, dgrad, wgrad, power_of_two] = products_.scheme();
  const MemoryScope scope(MemoryCategory::workspace);
  // wgrad reduces over the rows: zero-padded.
  const std::int64_t rows = products_.size(dlogits.size(0));
  const Tensor source = zero_padded(dlogits, rows, dlogits.size(1));
  const Float8Matrix codes(source, products_.gradient_uses(dhidden.defined(), dweight.defined()), {}, true, rounding_);
  rounding_.first_row += static_cast<std::uint64_t>(dlogits.size(0));
  health_.record(LayerOperand::output_gradient, source, codes.rowwise(), dlogits.numel(), rounding_.key.has_value());
  if (dhidden.defined()) {
    if (!dgrad) {
      gemm({.a = dlogits, .b = weight_.value(), .c = dhidden});
    } else {
      if (!weight_made_) weight_codes_ = Float8Matrix(weight_.value(), products_.weight_uses(), known_, false);
      weight_made_ = true;
      weight_codes_.keep_columnwise(weight_.value());
      const Tensor whole =
          rows == dhidden.size(0) ? dhidden : Tensor::empty({rows, dhidden.size(1)}, dhidden.dtype(), dhidden.device());
      products_.multiply(codes.rowwise(), weight_codes_.columnwise(), whole, 0.0f, *dgrad);
      if (rows != dhidden.size(0)) Tensor(dhidden).copy_from(whole.narrow(0, 0, dhidden.size(0)));
    }
  }
  if (!dweight.defined()) return;
  if (!wgrad) {
    gemm({.a = dlogits, .b = hidden, .c = dweight, .transpose_a = true, .beta = beta});
    return;
  }
  Float8Uses uses = products_.input_uses(true);
  uses.rowwise.reset();
  const Float8Matrix input(zero_padded(hidden, rows, hidden.size(1)), uses, {}, true);
  products_.multiply(codes.columnwise(), input.columnwise(), dweight, beta, *wgrad);
}

}  // namespace quench::recipes
