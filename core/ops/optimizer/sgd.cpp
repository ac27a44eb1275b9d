#include "core/ops/optimizer/sgd.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<SgdArgs> sgd_slot("sgd");

void sgd(const SgdArgs& args) {
  constexpr std::string_view op = "sgd";
  QUENCH_CHECK(args.step >= 1 && args.momentum >= 0 && args.momentum < 1,
               "sgd: step {}, momentum {}; the first step is 1, momentum is in [0, 1)", args.step, args.momentum);
  if (args.tensors.empty()) return;
  const Device device = args.tensors.front().param.device();
  for (const SgdTensor& t : args.tensors) {
    const auto check = [&](std::string_view name, const Tensor& tensor) {
      QUENCH_CHECK(tensor.defined() && is_f32_or_bf16(tensor.dtype()) && tensor.shape() == t.param.shape(),
                   "sgd: {} is {}, expected f32 or bf16 of the shape of param, {}", name, tensor.describe(),
                   t.param.describe());
      check_contiguous(op, name, tensor);
      QUENCH_CHECK(tensor.device() == device, "sgd: {} is {}, the others are on {}", name, tensor.describe(),
                   device.to_string());
    };
    check("param", t.param);
    check("grad", t.grad);
    QUENCH_CHECK(t.momentum.defined() == (args.momentum > 0), "sgd: momentum is {}, but its tensor is {}",
                 args.momentum, t.momentum.describe());
    if (t.momentum.defined()) check("momentum", t.momentum);
    if (t.master.defined()) {
      check("master", t.master);
      check_tensor(op, "master", t.master, t.param.shape(), DType::f32);
      QUENCH_CHECK(t.param.dtype() == DType::bf16, "sgd: param is {}; only a bf16 param has a master",
                   t.param.describe());
    }
    QUENCH_CHECK(t.element_offset >= 0, "sgd: element_offset is {}", t.element_offset);
  }
  if (args.grad_scale.defined()) {
    check_tensor(op, "grad_scale", args.grad_scale, {1}, DType::f32);
    check_same_device(op, {&args.tensors.front().param, &args.grad_scale});
  }
  sgd_slot(device.type, args);
}

}  // namespace quench
