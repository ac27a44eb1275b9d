#include "core/ops/experts/grouped_gemm.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<GroupedGemmArgs> grouped_gemm_slot("grouped_gemm");
constinit KernelSlot<GroupedWgradArgs> grouped_wgrad_slot("grouped_wgrad");

std::string op_label(const GroupedGemmArgs& args) {
  return fmt::format("grouped gemm N{} {}x({}x{})x{} {}", args.transpose_b ? 'T' : 'N', args.c.size(0), args.b.size(0),
                     args.c.size(1), args.a.size(1), to_string(args.c.dtype()));
}

std::string op_label(const GroupedWgradArgs& args) {
  return fmt::format("grouped gemm TN ({}x{})x{}x{} {}{}", args.c.size(0), args.c.size(1), args.c.size(2),
                     args.a.size(0), to_string(args.c.dtype()), args.beta != 0.0f ? " +=" : "");
}

void grouped_gemm(const GroupedGemmArgs& args) {
  constexpr std::string_view op = "grouped_gemm";
  const auto& [a, b, ends, c, transpose_b] = args;
  check_float_tensor(op, "a", a, 2);
  check_float_tensor(op, "b", b, 3);
  const std::int64_t groups = b.size(0), n = b.size(transpose_b ? 1 : 2), k = b.size(transpose_b ? 2 : 1);
  QUENCH_CHECK(a.size(1) == k && b.dtype() == a.dtype(), "{}: a {} and b {}{} do not fit", op, a.describe(),
               b.describe(), transpose_b ? "^T" : "");
  check_tensor(op, "ends", ends, {groups}, DType::i32);
  check_tensor(op, "c", c, {a.size(0), n}, a.dtype());
  check_contiguous(op, "a", a);
  check_contiguous(op, "b", b);
  check_contiguous(op, "c", c);
  check_same_device(op, {&a, &b, &c, &ends});
  if (c.numel() == 0) return;
  grouped_gemm_slot(c.device().type, args);
}

void grouped_wgrad(const GroupedWgradArgs& args) {
  constexpr std::string_view op = "grouped_wgrad";
  const Tensor &a = args.a, &b = args.b, &c = args.c, &ends = args.ends;
  check_float_tensor(op, "a", a, 2);
  check_float_tensor(op, "b", b, 2);
  QUENCH_CHECK(a.size(0) == b.size(0) && a.dtype() == b.dtype(), "{}: a {} and b {} do not fit", op, a.describe(),
               b.describe());
  check_tensor(op, "ends", ends, {-1}, DType::i32);
  check_gradient_sum(op, "c", c, {ends.size(0), a.size(1), b.size(1)}, a.dtype());
  check_contiguous(op, "a", a);
  check_contiguous(op, "b", b);
  check_same_device(op, {&a, &b, &c, &ends});
  if (c.numel() == 0) return;
  grouped_wgrad_slot(c.device().type, args);
}

}  // namespace quench
