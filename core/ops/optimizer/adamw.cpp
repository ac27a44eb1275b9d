#include "core/ops/optimizer/adamw.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<AdamWArgs> adamw_slot("adamw");

void adamw(const AdamWArgs& args) {
  constexpr std::string_view op = "adamw";
  QUENCH_CHECK(args.step >= 1, "adamw: step is {}, the first is 1", args.step);
  QUENCH_CHECK(args.beta1 >= 0 && args.beta1 < 1 && args.beta2 >= 0 && args.beta2 < 1 && args.eps >= 0,
               "adamw: beta1 {}, beta2 {}, eps {}; the betas must be in [0, 1), eps not negative", args.beta1,
               args.beta2, args.eps);
  if (args.tensors.empty()) return;
  const Device device = args.tensors.front().param.device();
  for (const AdamWTensor& t : args.tensors) {
    const auto check = [&](std::string_view name, const Tensor& tensor) {
      QUENCH_CHECK(tensor.defined() && is_f32_or_bf16(tensor.dtype()) && tensor.shape() == t.param.shape(),
                   "adamw: {} is {}, expected f32 or bf16 of the shape of param, {}", name, tensor.describe(),
                   t.param.describe());
      check_contiguous(op, name, tensor);
      QUENCH_CHECK(tensor.device() == device, "adamw: {} is {}, the others are on {}", name, tensor.describe(),
                   device.to_string());
    };
    check("param", t.param);
    check("grad", t.grad);
    check("exp_avg", t.exp_avg);
    check("exp_avg_sq", t.exp_avg_sq);
    QUENCH_CHECK(t.exp_avg.dtype() == t.exp_avg_sq.dtype(),
                 "adamw: exp_avg is {}, exp_avg_sq {}; their dtypes must agree", t.exp_avg.describe(),
                 t.exp_avg_sq.describe());
    if (t.master.defined()) {
      check_tensor(op, "master", t.master, t.param.shape(), t.master.dtype() == DType::i16 ? DType::i16 : DType::f32);
      check_contiguous(op, "master", t.master);
      check_same_device(op, {&t.param, &t.master});
      QUENCH_CHECK(t.param.dtype() == DType::bf16, "adamw: param is {}; only a bf16 param has a master",
                   t.param.describe());
    }
    if (t.amax.defined()) {
      check_tensor(op, "amax", t.amax, {}, DType::f32);
      check_same_device(op, {&t.param, &t.amax});
    }
    QUENCH_CHECK(t.element_offset >= 0, "adamw: element_offset is {}", t.element_offset);
  }
  if (args.grad_scale.defined()) {
    check_tensor(op, "grad_scale", args.grad_scale, {1}, DType::f32);
    check_same_device(op, {&args.tensors.front().param, &args.grad_scale});
  }
  adamw_slot(device.type, args);
}

}  // namespace quench
