#include "recipes/rounded/expert_input.h"

#include "core/ops/experts/expert_rows.h"
#include "core/ops/quantize/quantize_int.h"

namespace quench::recipes {

using autograd::Tape;

GroupRows rows_of(const Tensor& x, const autograd::ExpertRows& rows, bool tokens) {
  return {.x = x, .ends = rows.ends, .pairs = tokens ? rows.pairs : Tensor(), .choices = rows.choices};
}

Tensor copied(const GroupRows& rows) {
  if (!rows.pairs.defined()) return rows.x;
  const Tensor out = Tensor::empty({rows.rows(), rows.x.size(1)}, rows.x.dtype(), rows.x.device());
  gather_rows({.x = rows.x, .pairs = rows.pairs, .choices = rows.choices, .out = out});
  return out;
}

bool codes_save_memory(const autograd::Variable& x, const GroupRows& rows) {
  if (x.kept_by_producer() || (rows.pairs.defined() && rows.choices > 1)) return false;
  const bool made_again = x.recompute() != nullptr && Tape::current() != nullptr &&
                          Tape::current()->recompute() == autograd::Recompute::selective;
  return !made_again;
}

Shape expert_matrices(std::string_view kernel, const Tensor& x, const autograd::Weight& weight, std::int64_t experts) {
  QUENCH_CHECK(x.rank() == 2 && x.size(1) == weight.shape()[1] && weight.shape()[0] % experts == 0,
               "{}: x is {}, weight is {}, of {} experts; expected [R,K] and [E*N,K]", kernel, x.describe(),
               weight.describe(), experts);
  return {experts, weight.shape()[0] / experts, weight.shape()[1]};
}

void contribute_rows(autograd::Gradient& dx, const Shape& x_shape, const autograd::ExpertRows& rows, bool tokens,
                     const Tensor& dy, const std::function<void(const Tensor& of_rows)>& product, const Tensor& mask) {
  const auto fresh = [&](const Shape& shape, MemoryCategory category) {
    const MemoryScope scope(category);
    return Tensor::empty(shape, dy.dtype(), dy.device());
  };
  const Tensor of_rows =
      fresh({dy.size(0), x_shape[1]}, tokens ? MemoryCategory::workspace : MemoryCategory::activations);
  product(of_rows);
  const Tensor gradient = tokens ? fresh(x_shape, MemoryCategory::activations) : of_rows;
  if (tokens) sum_rows({.y = of_rows, .rows = rows.rows, .out = gradient});
  if (mask.defined()) zero_masked({gradient, mask});
  dx.contribute(gradient);
}

void finish_weight_gradient(autograd::Gradient& dw, const Shape& matrices,
                            const std::function<void(const Tensor& c, float beta)>& product, const Tensor& mask) {
  const autograd::GradientTarget into = dw.target();
  product(into.tensor.view(matrices), into.accumulate ? 1.0f : 0.0f);
  if (mask.defined()) zero_masked({into.tensor, mask});
  dw.end_use();
}

}  // namespace quench::recipes
