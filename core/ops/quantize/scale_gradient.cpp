#include "core/ops/quantize/scale_gradient.h"

#include <cmath>

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<ScaleGradientArgs> scale_gradient_slot("scale_gradient");

void scale_gradient(const ScaleGradientArgs& args) {
  constexpr std::string_view kOp = "scale_gradient";
  const auto check_matrix = [&](std::string_view name, const Tensor& x) {
    QUENCH_CHECK(x.defined() && x.rank() == 2 && is_f32_or_bf16(x.dtype()) && x.shape() == args.w.shape(),
                 "{}: {} is {}, expected a matrix of f32 or bf16 of w's shape", kOp, name, x.describe());
    check_contiguous(kOp, name, x);
  };
  check_matrix("w", args.w);
  check_matrix("dvalue", args.dvalue);
  QUENCH_CHECK(args.options.mapping == IntMapping::symmetric || has_few_levels(args.options.mapping),
               "{}: codes with zero points", kOp);
  const Shape shape{args.w.size(0), int_groups(kOp, args.w.size(1), args.options)};
  for (const auto& [name, t] : {std::pair{"scales", args.scales}, std::pair{"out", args.out}}) {
    check_tensor(kOp, name, t, shape, DType::f32);
    check_contiguous(kOp, name, t);
  }
  check_same_device(kOp, {&args.w, &args.dvalue, &args.scales, &args.out});
  if (args.w.numel() > 0) scale_gradient_slot(args.w.device().type, args);
}

float scale_gradient_factor(std::int64_t elements, const IntQuantOptions& options) {
  const int largest = int_range(options.bits, options.mapping).highest;
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(elements) * largest));
}

}  // namespace quench
