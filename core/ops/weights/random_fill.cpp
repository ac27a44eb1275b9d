#include "core/ops/weights/random_fill.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<RandomFillArgs> random_fill_slot("random_fill");

void random_fill(const RandomFillArgs& args) {
  constexpr std::string_view op = "random_fill";
  check_float_tensor(op, "out", args.out, args.out.rank());
  check_contiguous(op, "out", args.out);
  if (args.out.numel() == 0) return;
  random_fill_slot(args.out.device().type, args);
}

}  // namespace quench
