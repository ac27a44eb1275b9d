#include "core/ops/gemm.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<GemmArgs> gemm_slot("gemm");

namespace {
thread_local bool tuning_wanted = false;
}

GemmTuning::GemmTuning() noexcept : previous_(tuning_wanted) {
  tuning_wanted = true;
}
GemmTuning::~GemmTuning() {
  tuning_wanted = previous_;
}
bool GemmTuning::wanted() noexcept {
  return tuning_wanted;
}

std::string op_label(const GemmArgs& args) {
  return fmt::format("gemm {}{} {}x{}x{} {}{}", args.transpose_a ? 'T' : 'N', args.transpose_b ? 'T' : 'N',
                     args.c.size(0), args.c.size(1), args.a.size(args.transpose_a ? 0 : 1), to_string(args.c.dtype()),
                     args.beta == 0.0f       ? ""
                     : args.addend.defined() ? " +"
                                             : " +=");
}

void gemm(const GemmArgs& args) {
  const auto& [a, b, c, transpose_a, transpose_b, alpha, beta, bias, addend] = args;
  QUENCH_CHECK(a.defined() && b.defined() && c.defined() && a.rank() == 2 && b.rank() == 2 && c.rank() == 2,
               "gemm: a is {}, b is {}, c is {}; all must be matrices", a.describe(), b.describe(), c.describe());
  const std::int64_t m = a.size(transpose_a ? 1 : 0), k = a.size(transpose_a ? 0 : 1);
  const std::int64_t n = b.size(transpose_b ? 0 : 1), k_b = b.size(transpose_b ? 1 : 0);
  QUENCH_CHECK(k == k_b && c.size(0) == m && c.size(1) == n, "gemm: a {}{}, b {}{} and c {} do not fit", a.describe(),
               transpose_a ? "^T" : "", b.describe(), transpose_b ? "^T" : "", c.describe());
  QUENCH_CHECK(a.dtype() == b.dtype() && (c.dtype() == a.dtype() || c.dtype() == DType::f32),
               "gemm: dtypes a {}, b {}, c {}; c must be as a or f32", to_string(a.dtype()), to_string(b.dtype()),
               to_string(c.dtype()));
  const auto rows_ok = [](const Tensor& t) { return t.size(1) <= 1 || t.stride(1) == 1; };
  QUENCH_CHECK(rows_ok(a) && rows_ok(b) && rows_ok(c), "gemm: the last axis of every matrix must be contiguous");
  if (bias.defined()) check_tensor("gemm", "bias", bias, {n}, a.dtype());
  if (addend.defined())
    QUENCH_CHECK(addend.shape() == c.shape() && addend.dtype() == c.dtype() && rows_ok(addend),
                 "gemm: the addend is {}, expected the shape and dtype of c, {}, with contiguous columns",
                 addend.describe(), c.describe());
  check_same_device("gemm", {&a, &b, &c, &bias, &addend});
  if (m == 0 || n == 0) return;
  gemm_slot(c.device().type, args);
}

}  // namespace quench
