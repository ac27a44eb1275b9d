#include "core/ops/global_norm.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<SquaredNormArgs> squared_norm_slot("squared_norm");
constinit KernelSlot<ClipScaleArgs> clip_scale_slot("clip_scale");

void squared_norm(const SquaredNormArgs& args) {
  constexpr std::string_view op = "squared_norm";
  check_tensor(op, "result", args.result, {1}, DType::f64);
  for (const Tensor& tensor : args.tensors) {
    QUENCH_CHECK(tensor.defined() && is_f32_or_bf16(tensor.dtype()),
                 "squared_norm: a tensor is {}, expected f32 or bf16", tensor.describe());
    check_contiguous(op, "a tensor", tensor);
    check_same_device(op, {&args.result, &tensor});
  }
  squared_norm_slot(args.result.device().type, args);
}

void clip_scale(const ClipScaleArgs& args) {
  constexpr std::string_view op = "clip_scale";
  check_tensor(op, "squared_norm", args.squared_norm, {1}, DType::f64);
  check_tensor(op, "norm", args.norm, {1}, DType::f32);
  check_tensor(op, "scale", args.scale, {1}, DType::f32);
  check_same_device(op, {&args.squared_norm, &args.norm, &args.scale});
  clip_scale_slot(args.scale.device().type, args);
}

}  // namespace quench
