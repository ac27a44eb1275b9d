#include "core/ops/norm.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<RmsNormArgs> rms_norm_slot("rms_norm");
constinit KernelSlot<RmsNormBackwardArgs> rms_norm_backward_slot("rms_norm_backward");

namespace {

void check_input(std::string_view op, const Tensor& x, const Tensor& weight, const Tensor& rstd) {
  const int rank = x.rank() == 3 ? 3 : 2;
  check_float_tensor(op, "x", x, rank);
  check_contiguous_rows(op, "x", x);
  check_tensor(op, "weight", weight, {x.size(-1)}, x.dtype());
  check_contiguous(op, "weight", weight);
  Shape rows;
  for (int i = 0; i + 1 < rank; ++i) rows.push_back(x.size(i));
  check_tensor(op, "rstd", rstd, rows, DType::f32);
  check_contiguous(op, "rstd", rstd);
}

void check_form(std::string_view op, float weight_offset, bool f32_weight) {
  QUENCH_CHECK(weight_offset == 0.0f || f32_weight, "{}: a weight offset of {} needs f32_weight", op, weight_offset);
}

}  // namespace

void rms_norm(const RmsNormArgs& args) {
  constexpr std::string_view op = "rms_norm";
  check_input(op, args.x, args.weight, args.rstd);
  if (args.y.defined()) {
    check_tensor(op, "y", args.y, args.x.shape(), args.x.dtype());
    check_contiguous_rows(op, "y", args.y);
  }
  QUENCH_CHECK(args.residual.defined() == args.sum.defined(), "rms_norm: residual is {}, sum is {}; give both or none",
               args.residual.describe(), args.sum.describe());
  QUENCH_CHECK(args.eps >= 0.0f, "rms_norm: eps is {}", args.eps);
  check_form(op, args.weight_offset, args.f32_weight);
  if (args.residual.defined()) {
    QUENCH_CHECK(args.x.rank() == 2, "rms_norm: a residual needs x of rank 2, not {}", args.x.describe());
    check_tensor(op, "residual", args.residual, args.x.shape(), args.x.dtype());
    check_contiguous_rows(op, "residual", args.residual);
    check_tensor(op, "sum", args.sum, args.x.shape(), args.x.dtype());
    check_contiguous(op, "sum", args.sum);
  }
  check_same_device(op, {&args.x, &args.residual, &args.weight, &args.y, &args.sum, &args.rstd});
  check_quant_outputs(op, args.quant_outputs, args.y, args.x.shape());
  if (args.x.numel() == 0) return args.y.defined() ? fill_quant_outputs(args.quant_outputs, args.y) : void();
  rms_norm_slot(args.x.device().type, args);
}

void rms_norm_backward(const RmsNormBackwardArgs& args) {
  constexpr std::string_view op = "rms_norm_backward";
  check_input(op, args.x, args.weight, args.rstd);
  check_form(op, args.weight_offset, args.f32_weight);
  check_tensor(op, "dy", args.dy, args.x.shape(), args.x.dtype());
  check_contiguous_rows(op, "dy", args.dy);
  check_tensor(op, "dx", args.dx, args.x.shape(), args.x.dtype());
  check_contiguous_rows(op, "dx", args.dx);
  if (args.dsum.defined()) {
    check_tensor(op, "dsum", args.dsum, args.x.shape(), args.x.dtype());
    check_contiguous(op, "dsum", args.dsum);
  }
  if (args.dweight.defined()) check_gradient_sum(op, "dweight", args.dweight, {args.x.size(-1)}, args.x.dtype());
  if (args.y.defined()) {
    check_tensor(op, "y", args.y, args.x.shape(), args.x.dtype());
    check_contiguous_rows(op, "y", args.y);
  }
  check_same_device(op, {&args.x, &args.dy, &args.weight, &args.rstd, &args.dsum, &args.dx, &args.dweight, &args.y});
  check_quant_outputs(op, args.quant_outputs, args.dx);
  if (args.x.numel() == 0) {
    fill_quant_outputs(args.quant_outputs, args.dx);
    if (args.dweight.defined() && !args.accumulate_dweight) Tensor(args.dweight).zero();
    return;
  }
  rms_norm_backward_slot(args.x.device().type, args);
}

}  // namespace quench
