#include "core/ops/adapters/magnitude.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<RowNormsArgs> row_norms_slot("row_norms");
constinit KernelSlot<ScaleByMagnitudeArgs> scale_by_magnitude_slot("scale_by_magnitude");
constinit KernelSlot<MagnitudeGradientArgs> magnitude_gradient_slot("magnitude_gradient");

void row_norms(const RowNormsArgs& args) {
  constexpr std::string_view op = "row_norms";
  check_float_tensor(op, "x", args.x, 2);
  check_contiguous(op, "x", args.x);
  check_tensor(op, "out", args.out, {args.x.size(0)}, DType::f32);
  check_contiguous(op, "out", args.out);
  check_same_device(op, {&args.x, &args.out});
  if (args.x.size(0) > 0) row_norms_slot(args.x.device().type, args);
}

void scale_by_magnitude(const ScaleByMagnitudeArgs& args) {
  constexpr std::string_view op = "scale_by_magnitude";
  const auto& [x, magnitude, norms, bias, out, by_row] = args;
  check_float_tensor(op, "x", x, 2);
  check_contiguous_rows(op, "x", x);
  check_tensor(op, "out", out, x.shape(), x.dtype());
  check_contiguous_rows(op, "out", out);
  if (magnitude.defined()) {
    const Shape lines{x.size(by_row ? 0 : 1)};
    check_float_tensor(op, "magnitude", magnitude, 1);
    check_tensor(op, "magnitude", magnitude, lines, magnitude.dtype());
    check_tensor(op, "norms", norms, lines, DType::f32);
    check_contiguous(op, "magnitude", magnitude);
    check_contiguous(op, "norms", norms);
  }
  if (bias.defined()) {
    check_tensor(op, "bias", bias, {x.size(1)}, x.dtype());
    check_contiguous(op, "bias", bias);
  }
  check_same_device(op, {&x, &magnitude, &norms, &bias, &out});
  if (out.numel() > 0) scale_by_magnitude_slot(out.device().type, args);
}

void magnitude_gradient(const MagnitudeGradientArgs& args) {
  constexpr std::string_view op = "magnitude_gradient";
  check_float_tensor(op, "dy", args.dy, 2);
  check_tensor(op, "x", args.x, args.dy.shape(), args.dy.dtype());
  check_contiguous_rows(op, "dy", args.dy);
  check_contiguous_rows(op, "x", args.x);
  check_tensor(op, "norms", args.norms, {args.x.size(1)}, DType::f32);
  check_contiguous(op, "norms", args.norms);
  check_gradient_sum(op, "out", args.out, {args.x.size(1)}, args.x.dtype());
  check_same_device(op, {&args.dy, &args.x, &args.norms, &args.out});
  if (args.out.numel() > 0) magnitude_gradient_slot(args.out.device().type, args);
}

}  // namespace quench
