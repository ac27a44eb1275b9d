#include "core/ops/quantize/blocked_scales.h"

#include "core/number/blocked_scale.h"
#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<BlockedScalesArgs> to_blocked_slot("to_blocked");

namespace {

void check_blocked(const BlockedScalesArgs& args) {
  constexpr std::string_view op = "to_blocked";
  const Tensor& scales = args.scales;
  QUENCH_CHECK(scales.defined() && scales.rank() == 2 && bit_width(scales.dtype()) == 8,
               "{}: scales are {}, expected a matrix of one byte an element", op, scales.describe());
  check_contiguous(op, "scales", scales);
  check_tensor(op, "blocked", args.blocked, {blocked_scale_bytes(scales.size(0), scales.size(1))}, scales.dtype());
  check_contiguous(op, "blocked", args.blocked);
  check_same_device(op, {&scales, &args.blocked});
}

}  // namespace

void to_blocked(const BlockedScalesArgs& args) {
  check_blocked(args);
  if (args.scales.numel() > 0) to_blocked_slot(args.scales.device().type, args);
}

Tensor to_blocked(const Tensor& scales) {
  QUENCH_CHECK(scales.defined() && scales.rank() == 2, "to_blocked: scales are {}, expected a matrix",
               scales.describe());
  const Tensor blocked =
      Tensor::empty({blocked_scale_bytes(scales.size(0), scales.size(1))}, scales.dtype(), scales.device());
  to_blocked({scales, blocked});
  return blocked;
}

}  // namespace quench
