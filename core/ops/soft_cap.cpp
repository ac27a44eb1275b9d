#include "core/ops/soft_cap.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<SoftCapArgs> soft_cap_slot("soft_cap");
constinit KernelSlot<SoftCapBackwardArgs> soft_cap_backward_slot("soft_cap_backward");

namespace {

void check_capped(std::string_view op, std::string_view name, const Tensor& values, float cap) {
  check_float_tensor(op, name, values, 2);
  check_contiguous(op, name, values);
  QUENCH_CHECK(cap > 0, "{}: cap is {}, must be positive", op, cap);
}

}  // namespace

void soft_cap(const SoftCapArgs& args) {
  check_capped("soft_cap", "x", args.x, args.cap);
  if (args.x.numel() > 0) soft_cap_slot(args.x.device().type, args);
}

void soft_cap_backward(const SoftCapBackwardArgs& args) {
  constexpr std::string_view op = "soft_cap_backward";
  check_capped(op, "dx", args.dx, args.cap);
  check_tensor(op, "y", args.y, args.dx.shape(), args.dx.dtype());
  check_contiguous(op, "y", args.y);
  check_same_device(op, {&args.dx, &args.y});
  if (args.dx.numel() > 0) soft_cap_backward_slot(args.dx.device().type, args);
}

}  // namespace quench
