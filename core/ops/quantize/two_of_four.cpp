#include "core/ops/quantize/two_of_four.h"

#include "core/ops/op_checks.h"

namespace quench {

constinit KernelSlot<KeepTwoOfFourArgs> keep_two_of_four_slot("keep_two_of_four");

std::string two_of_four_problem(TwoOfFour rule, std::int64_t rows, std::int64_t columns) {
  if (columns % 4 != 0) return fmt::format("its {} inputs are no multiple of 4", columns);
  if (rule == TwoOfFour::transposable && rows % 4 != 0) return fmt::format("its {} outputs are no multiple of 4", rows);
  return {};
}

void keep_two_of_four(const KeepTwoOfFourArgs& args) {
  constexpr std::string_view kOp = "keep_two_of_four";
  const auto& [x, out, rule] = args;
  QUENCH_CHECK(
      x.defined() && x.rank() == 2 && (x.dtype() == DType::f32 || x.dtype() == DType::bf16 || x.dtype() == DType::f16),
      "{}: x is {}, expected a matrix of f32, bf16 or f16", kOp, x.describe());
  check_contiguous(kOp, "x", x);
  check_tensor(kOp, "out", out, x.shape(), x.dtype());
  check_contiguous(kOp, "out", out);
  check_same_device(kOp, {&x, &out});
  const std::string problem = two_of_four_problem(rule, x.size(0), x.size(1));
  QUENCH_CHECK(problem.empty(), "{}: x is {}: {}", kOp, x.describe(), problem);
  if (x.numel() > 0) keep_two_of_four_slot(x.device().type, args);
}

Tensor two_of_four(const Tensor& x, TwoOfFour rule) {
  const Tensor out = Tensor::empty_like(x);
  keep_two_of_four({x, out, rule});
  return out;
}

}  // namespace quench
