#include "core/ops/scale_rows.h"

#include "core/ops/op_checks.h"

namespace quench {

constinit KernelSlot<ScaleRowsArgs> scale_rows_slot("scale_rows");

void scale_rows(const ScaleRowsArgs& args) {
  constexpr std::string_view op = "scale_rows";
  check_float_tensor(op, "x", args.x, 2);
  check_contiguous(op, "x", args.x);
  check_tensor(op, "factors", args.factors, {args.x.size(0)}, DType::f32);
  check_contiguous(op, "factors", args.factors);
  check_same_device(op, {&args.x, &args.factors});
  if (args.x.numel() == 0) return;
  scale_rows_slot(args.x.device().type, args);
}

}  // namespace quench
