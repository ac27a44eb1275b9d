#include "recipes/emulated/expert_input.h"

#include "core/ops/experts/token_permutation.h"
#include "core/ops/quantize/quantize_int.h"
#include "recipes/free_in_backward.h"

namespace quench::recipes {

GroupRows rows_of(const Tensor& x, const autograd::TokenPermutation& rows, bool tokens) {
  return {.x = x, .ends = rows.ends, .pairs = tokens ? rows.pairs : Tensor(), .choices = rows.choices};
}

Tensor copied(const GroupRows& rows) {
  if (!rows.pairs.defined()) return rows.x;
  const Tensor out = Tensor::empty({rows.rows(), rows.x.size(1)}, rows.x.dtype(), rows.x.device());
  permute_tokens({.x = rows.x, .pairs = rows.pairs, .choices = rows.choices, .out = out});
  return out;
}

bool codes_save_memory(const autograd::Variable& x, const GroupRows& rows) {
  return !is_free_in_backward(x) && !(rows.pairs.defined() && rows.choices > 1);
}

bool is_recomputed_by_producer(const autograd::Variable& x, bool tokens) {
  return !tokens && x.fused().recompute() != nullptr && x.fused().recompute()->in_backward();
}

autograd::Saved saved_input(const autograd::Variable& x, bool recomputed) {
  return recomputed ? autograd::Saved::recomputed(x) : autograd::Saved(x);
}

Shape expert_matrices(std::string_view kernel, const Tensor& x, const autograd::Weight& weight, std::int64_t experts) {
  QUENCH_CHECK(x.rank() == 2 && x.size(1) == weight.shape()[1] && weight.shape()[0] % experts == 0,
               "{}: x is {}, weight is {}, of {} experts; expected [R,K] and [E*N,K]", kernel, x.describe(),
               weight.describe(), experts);
  return {experts, weight.shape()[0] / experts, weight.shape()[1]};
}

Tensor rows_or_sums(const GroupRows& operand, std::int64_t width, const autograd::TokenPermutation& rows, bool sums,
                    const std::function<void(const Tensor& of_rows)>& product) {
  const auto fresh = [&](std::int64_t count, MemoryCategory category) {
    const MemoryScope scope(category);
    return Tensor::empty({count, width}, operand.x.dtype(), operand.x.device());
  };
  const Tensor of_rows = fresh(operand.rows(), sums ? MemoryCategory::workspace : MemoryCategory::activations);
  product(of_rows);
  if (!sums) return of_rows;
  const Tensor of_tokens = fresh(rows.rows.size(0), MemoryCategory::activations);
  unpermute_tokens({.y = of_rows, .rows = rows.rows, .out = of_tokens});
  return of_tokens;
}

void finish_weight_gradient(autograd::Gradient& dw, const Shape& matrices,
                            const std::function<void(const Tensor& c, float beta)>& product, const Tensor& mask) {
  const autograd::GradientTarget into = dw.target();
  product(into.tensor.view(matrices), into.accumulate ? 1.0f : 0.0f);
  if (mask.defined()) zero_masked({into.tensor, mask});
  dw.end_use();
}

}  // namespace quench::recipes
