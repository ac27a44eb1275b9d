#include "core/ops/experts/round_groups.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<RoundGroupsArgs> round_groups_slot("round_groups");

void round_groups(const RoundGroupsArgs& args) {
  constexpr std::string_view op = "round_groups";
  check_float_tensor(op, "x", args.x, 2);
  check_contiguous(op, "x", args.x);
  check_tensor(op, "ends", args.ends, {-1}, DType::i32);
  check_tensor(op, "out", args.out, args.x.shape(), args.x.dtype());
  check_contiguous(op, "out", args.out);
  QUENCH_CHECK(args.element == ElementFormat::e4m3 || args.element == ElementFormat::e5m2, "{}: {} is no float8 format",
               op, to_string(args.element));
  QUENCH_CHECK(args.out.raw_data() != args.x.raw_data() || args.x.numel() == 0, "{}: out must not be x", op);
  check_same_device(op, {&args.x, &args.ends, &args.out});
  if (args.x.numel() == 0) return;
  round_groups_slot(args.x.device().type, args);
}

}  // namespace quench
