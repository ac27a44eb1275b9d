#include "core/ops/low_rank_gradients.h"

#include "core/ops/gemm.h"
#include "core/ops/op_checks.h"

namespace quench {

constinit KernelSlot<LowRankGradientsArgs> low_rank_gradients_slot("low_rank_gradients");

std::string op_label(const LowRankGradientsArgs& args) {
  return fmt::format("low rank gradients {}x{}x{} {}", args.dy.size(0), args.dy.size(1), args.b.size(1),
                     to_string(args.dy.dtype()));
}

void low_rank_gradients(const LowRankGradientsArgs& args) {
  constexpr std::string_view op = "low_rank_gradients";
  const auto& [dy, h, b, dh, db, scale, accumulate] = args;
  check_float_tensor(op, "dy", dy, 2);
  check_float_tensor(op, "b", b, 2);
  const std::int64_t n = dy.size(0), m = dy.size(1), rank = b.size(1);
  check_tensor(op, "b", b, {m, rank}, dy.dtype());
  check_tensor(op, "h", h, {n, rank}, dy.dtype());
  check_tensor(op, "dh", dh, {n, rank}, dy.dtype());
  check_gradient_sum(op, "db", db, {m, rank}, dy.dtype());
  check_contiguous(op, "b", b);
  for (const Tensor* t : {&dy, &h, &dh})
    QUENCH_CHECK(t->size(1) <= 1 || t->stride(1) == 1, "{}: the columns of {} must be contiguous", op, t->describe());
  check_same_device(op, {&dy, &h, &b, &dh, &db});
  if (n * rank + m * rank == 0) return;
  low_rank_gradients_slot(dy.device().type, args);
}

void low_rank_gradients_by_products(const LowRankGradientsArgs& args) {
  gemm({.a = args.dy, .b = args.b, .c = args.dh, .alpha = args.scale});
  gemm({.a = args.dy,
        .b = args.h,
        .c = args.db,
        .transpose_a = true,
        .alpha = args.scale,
        .beta = args.accumulate ? 1.0f : 0.0f});
}

}  // namespace quench
