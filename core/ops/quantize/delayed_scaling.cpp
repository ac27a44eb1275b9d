#include "core/ops/quantize/delayed_scaling.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<DelayedScalingArgs> delayed_scaling_slot("delayed_scaling");

void update_delayed_scales(const DelayedScalingArgs& args) {
  constexpr std::string_view op = "delayed_scaling";
  check_tensor(op, "history", args.history, {-1, -1}, DType::f32);
  const Shape operands{args.history.size(0)};
  check_tensor(op, "recorded", args.recorded, operands, DType::f32);
  check_tensor(op, "largest", args.largest, operands, DType::f32);
  check_tensor(op, "scale", args.scale, operands, DType::f32);
  for (const Tensor* tensor : {&args.recorded, &args.history, &args.largest, &args.scale})
    check_contiguous(op, "an argument", *tensor);
  check_same_device(op, {&args.recorded, &args.history, &args.largest, &args.scale});
  QUENCH_CHECK(args.history.size(1) >= 1, "{}: the history has no columns, expected at least one step", op);
  constexpr int kMostMargin = 64;
  QUENCH_CHECK(args.margin >= 0 && args.margin <= kMostMargin, "{}: margin {}, expected 0 to {}", op, args.margin,
               kMostMargin);
  if (args.recorded.numel() > 0) delayed_scaling_slot(args.recorded.device().type, args);
}

}  // namespace quench
