#include "core/ops/quantize/tuned_rounding.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<TunedValuesArgs> tuned_values_slot("tuned_values");
constinit KernelSlot<TunedStepArgs> tuned_step_slot("tuned_step");

namespace {

void check_rounding(std::string_view op, const TunedRounding& of, const Tensor& other, std::string_view name) {
  QUENCH_CHECK(of.w.defined() && of.w.rank() == 2 && of.w.dtype() == DType::f32, "{}: w is {}, expected f32 [N,K]", op,
               of.w.describe());
  check_contiguous(op, "w", of.w);
  check_tensor(op, "offsets", of.offsets, of.w.shape(), DType::f32);
  check_contiguous(op, "offsets", of.offsets);
  QUENCH_CHECK(of.bounds.defined() && of.bounds.rank() == 2 && of.bounds.size(1) == 2 &&
                   of.bounds.dtype() == DType::f32 && of.bounds.size(0) >= of.w.size(0) &&
                   of.w.numel() % of.bounds.size(0) == 0 && of.w.size(1) % (of.w.numel() / of.bounds.size(0)) == 0,
               "{}: bounds is {}, expected f32 [groups,2] whose groups divide the rows of w {}", op,
               of.bounds.describe(), of.w.describe());
  check_contiguous(op, "bounds", of.bounds);
  check_tensor(op, "factors", of.factors, of.bounds.shape(), DType::f32);
  check_contiguous(op, "factors", of.factors);
  QUENCH_CHECK(of.grid.kind != GridKind::integers ||
                   (of.grid.mapping != IntMapping::float_zero_point &&
                    of.grid.mapping != IntMapping::truncated_zero_point && of.grid.bits >= 1 && of.grid.bits <= 8),
               "{}: a grid without integer zero points", op);
  QUENCH_CHECK(other.defined() && other.shape() == of.w.shape(), "{}: {} is {}, expected the shape of w {}", op, name,
               other.describe(), of.w.describe());
  check_contiguous(op, name, other);
  check_same_device(op, {&of.w, &of.offsets, &of.bounds, &of.factors, &other});
}

}  // namespace

void tuned_values(const TunedValuesArgs& args) {
  constexpr std::string_view kOp = "tuned_values";
  if (args.rounding.w.defined() && args.rounding.w.numel() == 0) return;
  check_rounding(kOp, args.rounding, args.out, "out");
  QUENCH_CHECK(is_f32_or_bf16(args.out.dtype()), "{}: out is {}, expected f32 or bf16", kOp, args.out.describe());
  tuned_values_slot(args.out.device().type, args);
}

void tuned_step(const TunedStepArgs& args) {
  constexpr std::string_view kOp = "tuned_step";
  if (args.rounding.w.defined() && args.rounding.w.numel() == 0) return;
  check_rounding(kOp, args.rounding, args.gradient, "gradient");
  QUENCH_CHECK(args.gradient.dtype() == DType::f32, "{}: gradient is {}, expected f32", kOp, args.gradient.describe());
  QUENCH_CHECK(args.rate >= 0, "{}: rate {}", kOp, args.rate);
  tuned_step_slot(args.gradient.device().type, args);
}

}  // namespace quench
