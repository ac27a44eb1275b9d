#include "core/ops/quantize/blocked_scales.h"

#include "core/number/blocked_scale.h"
#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<BlockedScalesArgs> to_blocked_slot("to_blocked");
constinit KernelSlot<BlockedScalesArgs> from_blocked_slot("from_blocked");

namespace {

void check_blocked(std::string_view op, const BlockedScalesArgs& args) {
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
  check_blocked("to_blocked", args);
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

void from_blocked(const BlockedScalesArgs& args) {
  check_blocked("from_blocked", args);
  if (args.scales.numel() > 0) from_blocked_slot(args.scales.device().type, args);
}

Tensor from_blocked(const Tensor& blocked, std::int64_t rows, std::int64_t columns) {
  QUENCH_CHECK(blocked.defined(), "from_blocked: blocked scales are undefined");
  const Tensor scales = Tensor::empty({rows, columns}, blocked.dtype(), blocked.device());
  from_blocked({scales, blocked});
  return scales;
}

}  // namespace quench
