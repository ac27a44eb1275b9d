#include "core/ops/basic/mul.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<MulArgs> mul_slot("mul");
constinit KernelSlot<BroadcastRowsArgs> broadcast_rows_slot("broadcast_rows");

void mul(const MulArgs& args) {
  constexpr std::string_view op = "mul";
  const auto& [a, b, out] = args;
  check_float_tensor(op, "a", a, a.rank());
  QUENCH_CHECK(b.defined() && b.dtype() == a.dtype() &&
                   (b.shape() == a.shape() || (a.rank() > 0 && b.shape() == Shape{a.size(-1)})),
               "mul: a is {}, b is {}; expected equal dtypes, and b of the shape of a or of its last axis",
               a.describe(), b.describe());
  QUENCH_CHECK(out.defined() && out.shape() == a.shape() && (out.dtype() == a.dtype() || out.dtype() == DType::f32),
               "mul: a is {}, out is {}; expected the shape of a, and its dtype or f32", a.describe(), out.describe());
  check_contiguous(op, "a", a);
  check_contiguous(op, "b", b);
  check_contiguous(op, "out", out);
  check_same_device(op, {&a, &b, &out});
  if (out.numel() == 0) return;
  mul_slot(out.device().type, args);
}

void broadcast_rows(const BroadcastRowsArgs& args) {
  constexpr std::string_view op = "broadcast_rows";
  check_float_tensor(op, "from", args.from, 1);
  check_float_tensor(op, "out", args.out, 2);
  QUENCH_CHECK(args.from.size(0) == 1 || args.from.size(0) == args.out.size(1),
               "broadcast_rows: from is {}, out is {}; expected one value, or one for each column",
               args.from.describe(), args.out.describe());
  check_contiguous(op, "from", args.from);
  check_contiguous(op, "out", args.out);
  check_same_device(op, {&args.from, &args.out});
  if (args.out.numel() == 0) return;
  broadcast_rows_slot(args.out.device().type, args);
}

}  // namespace quench
