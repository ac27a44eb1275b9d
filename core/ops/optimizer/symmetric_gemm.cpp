#include "core/ops/optimizer/symmetric_gemm.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<SymmetricGemmArgs> symmetric_gemm_slot("symmetric_gemm");

std::string op_label(const SymmetricGemmArgs& args) {
  const std::int64_t n = args.c.size(1);
  return fmt::format("symmetric gemm {} {}x{}x{}x{} {}{}", args.transpose ? 'T' : 'N', args.c.size(0), n, n,
                     args.a.size(args.transpose ? 1 : 2), to_string(args.c.dtype()), args.beta != 0.0f ? " +" : "");
}

void symmetric_gemm(const SymmetricGemmArgs& args) {
  constexpr std::string_view op = "symmetric_gemm";
  const auto& [a, b, c, transpose, alpha, beta, addend, diagonal, factors] = args;
  check_float_tensor(op, "a", a, 3);
  check_tensor(op, "b", b, a.shape(), a.dtype());
  const std::int64_t n = a.size(transpose ? 2 : 1);
  check_tensor(op, "c", c, {a.size(0), n, n}, a.dtype());
  if (beta != 0.0f) check_tensor(op, "addend", addend, c.shape(), c.dtype());
  for (const auto& [name, tensor] : {std::pair{"a", &a}, {"b", &b}, {"c", &c}, {"addend", &addend}})
    if (tensor->defined()) check_contiguous(op, name, *tensor);
  if (factors.defined()) check_tensor(op, "factors", factors, {a.size(0)}, DType::f32);
  check_same_device(op, {&a, &b, &c, &addend, &factors});
  if (c.numel() == 0) return;
  symmetric_gemm_slot(c.device().type, args);
}

}  // namespace quench
