#include "core/ops/basic/softmax.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<SoftmaxArgs> softmax_slot("softmax");
constinit KernelSlot<SoftmaxBackwardArgs> softmax_backward_slot("softmax_backward");

void softmax(const SoftmaxArgs& args) {
  constexpr std::string_view op = "softmax";
  check_float_tensor(op, "x", args.x, 2);
  check_tensor(op, "y", args.y, args.x.shape(), args.x.dtype());
  check_contiguous(op, "x", args.x);
  check_contiguous(op, "y", args.y);
  check_same_device(op, {&args.x, &args.y});
  if (args.x.numel() == 0) return;
  softmax_slot(args.y.device().type, args);
}

void softmax_backward(const SoftmaxBackwardArgs& args) {
  constexpr std::string_view op = "softmax_backward";
  check_float_tensor(op, "dy", args.dy, 2);
  check_tensor(op, "y", args.y, args.dy.shape(), args.dy.dtype());
  check_tensor(op, "dx", args.dx, args.dy.shape(), args.dy.dtype());
  check_contiguous(op, "dy", args.dy);
  check_contiguous(op, "y", args.y);
  check_contiguous(op, "dx", args.dx);
  check_same_device(op, {&args.dy, &args.y, &args.dx});
  if (args.dy.numel() == 0) return;
  softmax_backward_slot(args.dx.device().type, args);
}

}  // namespace quench
