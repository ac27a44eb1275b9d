#include "core/ops/quantize/sparsity_2_4.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<Prune24Args> prune_2_4_slot("prune_2_4");

std::string sparsity_2_4_problem(Sparsity24 rule, std::int64_t rows, std::int64_t columns) {
  if (columns % 4 != 0) return fmt::format("its {} inputs are no multiple of 4", columns);
  if (rule == Sparsity24::transposable && rows % 4 != 0)
    return fmt::format("its {} outputs are no multiple of 4", rows);
  return {};
}

void prune_2_4(const Prune24Args& args) {
  constexpr std::string_view kOp = "prune_2_4";
  const auto& [x, out, rule] = args;
  QUENCH_CHECK(
      x.defined() && x.rank() == 2 && (x.dtype() == DType::f32 || x.dtype() == DType::bf16 || x.dtype() == DType::f16),
      "{}: x is {}, expected a matrix of f32, bf16 or f16", kOp, x.describe());
  check_contiguous(kOp, "x", x);
  check_tensor(kOp, "out", out, x.shape(), x.dtype());
  check_contiguous(kOp, "out", out);
  check_same_device(kOp, {&x, &out});
  const std::string problem = sparsity_2_4_problem(rule, x.size(0), x.size(1));
  QUENCH_CHECK(problem.empty(), "{}: x is {}: {}", kOp, x.describe(), problem);
  if (x.numel() > 0) prune_2_4_slot(x.device().type, args);
}

Tensor pruned_2_4(const Tensor& x, Sparsity24 rule) {
  const Tensor out = Tensor::empty_like(x);
  prune_2_4({x, out, rule});
  return out;
}

}  // namespace quench
