#include "core/ops/basic/gelu.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<GeluArgs> gelu_slot("gelu");
constinit KernelSlot<GeluBackwardArgs> gelu_backward_slot("gelu_backward");

void gelu(const GeluArgs& args) {
  constexpr std::string_view op = "gelu";
  check_float_tensor(op, "x", args.x, args.x.rank());
  check_tensor(op, "y", args.y, args.x.shape(), args.x.dtype());
  check_contiguous(op, "x", args.x);
  check_contiguous(op, "y", args.y);
  check_same_device(op, {&args.x, &args.y});
  if (args.x.numel() == 0) return;
  gelu_slot(args.y.device().type, args);
}

void gelu_backward(const GeluBackwardArgs& args) {
  constexpr std::string_view op = "gelu_backward";
  check_float_tensor(op, "dy", args.dy, args.dy.rank());
  check_tensor(op, "x", args.x, args.dy.shape(), args.dy.dtype());
  check_tensor(op, "dx", args.dx, args.dy.shape(), args.dy.dtype());
  check_contiguous(op, "dy", args.dy);
  check_contiguous(op, "x", args.x);
  check_contiguous(op, "dx", args.dx);
  check_same_device(op, {&args.dy, &args.x, &args.dx});
  if (args.dy.numel() == 0) return;
  gelu_backward_slot(args.dx.device().type, args);
}

}  // namespace quench
