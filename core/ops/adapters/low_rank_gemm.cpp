#include "core/ops/adapters/low_rank_gemm.h"

#include "core/device/planned_device.h"
#include "core/ops/gemm.h"
#include "core/ops/swiglu.h"
#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<LowRankGemmArgs> low_rank_gemm_slot("low_rank_gemm");

std::string op_label(const LowRankGemmArgs& args) {
  const std::string_view unit = args.activation == GatedActivation::silu ? "swiglu" : "geglu";
  return fmt::format("low-rank gemm N{} {}x{}x{}+{} {}{}", args.transpose_b ? 'T' : 'N', args.a.size(0),
                     args.b.size(args.transpose_b ? 0 : 1), args.a.size(1), args.u.size(1),
                     to_string(args.c.defined() ? args.c.dtype() : args.a.dtype()),
                     args.gated.defined()      ? fmt::format(" + {}", unit)
                     : args.dgate_up.defined() ? fmt::format(" + {} backward", unit)
                                               : std::string());
}

namespace {

// Plan of a kernel that stores dgate_up without C: SM90 in bf16, 512 rows and more, slices of 64 columns.
bool is_planned_in_one_kernel(const LowRankGemmArgs& args) {
  return args.a.device().is_meta() && PlannedDevice::hopper() && args.a.dtype() == DType::bf16 &&
         args.dgate_up.defined() && args.dgate_up.size(1) % 128 == 0 && args.a.size(0) >= 512 &&
         args.a.size(1) % 8 == 0;
}

}  // namespace

void low_rank_gemm(const LowRankGemmArgs& args) {
  constexpr std::string_view op = "low_rank_gemm";
  const auto& [a, b, u, c, blocks, transpose_b, gated, gate_up, dgate_up, activation] = args;
  check_float_tensor(op, "a", a, 2);
  const std::int64_t m = a.size(0), k = a.size(1);
  check_tensor(op, "b", b, transpose_b ? Shape{-1, k} : Shape{k, -1}, a.dtype());
  const std::int64_t n = b.size(transpose_b ? 0 : 1);
  check_tensor(op, "u", u, {m, -1}, a.dtype());
  const bool to_gate_up = dgate_up.defined();
  if (to_gate_up) {
    QUENCH_CHECK(!c.defined() && !gated.defined(), "{}: dgate_up is in place of c and of the gated unit of it", op);
    for (const auto& [name, tensor] : {std::pair{"gate_up", &gate_up}, {"dgate_up", &dgate_up}}) {
      check_tensor(op, name, *tensor, {m, 2 * n}, a.dtype());
      check_contiguous(op, name, *tensor);
    }
  } else {
    check_tensor(op, "c", c, {m, n}, c.defined() && c.dtype() == DType::f32 ? DType::f32 : a.dtype());
    check_contiguous_rows(op, "c", c);
  }
  for (const auto& [name, tensor] : {std::pair{"a", &a}, {"b", &b}, {"u", &u}})
    check_contiguous_rows(op, name, *tensor);
  if (gated.defined()) {
    check_tensor(op, "gated", gated, {m, n / 2}, c.dtype());
    check_contiguous(op, "gated", gated);
    check_contiguous(op, "c", c);
    QUENCH_CHECK(n % 2 == 0, "{}: a gated unit of {} columns", op, n);
  }
  check_same_device(op, {&a, &b, &u, &c, &gated, &gate_up, &dgate_up});
  std::int64_t next = 0;
  for (const LowRankBlock& block : blocks) {
    check_tensor(op, "v", block.v, {-1, -1}, a.dtype());
    check_contiguous_rows(op, "v", block.v);
    check_same_device(op, {&a, &block.v});
    const std::int64_t width = block.v.size(transpose_b ? 0 : 1), rank = block.v.size(transpose_b ? 1 : 0);
    QUENCH_CHECK(
        block.column >= next && block.column + width <= n && block.rank_begin >= 0 &&
            block.rank_begin + rank <= u.size(1),
        "{}: a block of columns {} to {} and of columns {} to {} of u, where u is {}, c has {} columns and the "
        "block before it ends at {}",
        op, block.column, block.column + width, block.rank_begin, block.rank_begin + rank, u.describe(), n, next);
    next = block.column + width;
  }
  if (m * n == 0 || is_planned_in_one_kernel(args)) return;
  if (!low_rank_gemm_slot.filled(a.device().type)) return low_rank_gemm_in_products(args);
  low_rank_gemm_slot(a.device().type, args);
}

void low_rank_gemm_in_products(const LowRankGemmArgs& args) {
  if (args.dgate_up.defined()) {
    LowRankGemmArgs product = args;
    product.c = Tensor::empty({args.a.size(0), args.dgate_up.size(1) / 2}, args.a.dtype(), args.a.device());
    product.gate_up = product.dgate_up = Tensor();
    low_rank_gemm(product);
    return swiglu_backward(
        {.dout = product.c, .gate_up = args.gate_up, .dgate_up = args.dgate_up, .activation = args.activation});
  }
  const int wide = args.transpose_b ? 0 : 1;
  std::int64_t covered = 0;
  for (const LowRankBlock& block : args.blocks) covered += block.v.size(wide);
  const bool update_first = covered == args.c.size(1);
  const auto product = [&] {
    gemm({.a = args.a, .b = args.b, .c = args.c, .transpose_b = args.transpose_b, .beta = update_first ? 1.0f : 0.0f});
  };
  if (!update_first) product();
  for (const LowRankBlock& block : args.blocks)
    gemm({.a = args.u.narrow(1, block.rank_begin, block.v.size(1 - wide)),
          .b = block.v,
          .c = args.c.narrow(1, block.column, block.v.size(wide)),
          .transpose_b = args.transpose_b,
          .beta = update_first ? 0.0f : 1.0f});
  if (update_first) product();
  if (args.gated.defined()) swiglu({.gate_up = args.c, .out = args.gated, .activation = args.activation});
}

}  // namespace quench
