#include "core/ops/optimizer/low_bit_adamw.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<LowBitAdamWArgs> low_bit_adamw_slot("low_bit_adamw");

void low_bit_adamw(const LowBitAdamWArgs& args) {
  constexpr std::string_view op = "low_bit_adamw";
  const AdamWArgs& a = args.adamw;
  QUENCH_CHECK(a.step >= 1, "{}: step is {}, the first is 1", op, a.step);
  QUENCH_CHECK(a.beta1 >= 0 && a.beta1 < 1 && a.beta2 >= 0 && a.beta2 < 1 && a.eps >= 0,
               "{}: beta1 {}, beta2 {}, eps {}; the betas must be in [0, 1), eps not negative", op, a.beta1, a.beta2,
               a.eps);
  if (args.tensors.empty()) return;
  const std::int64_t block = moment_block(args.format);
  const Device device = args.tensors.front().param.device();
  for (const LowBitAdamWTensor& t : args.tensors) {
    check_float_tensor(op, "param", t.param, 2);
    const std::int64_t rows = t.param.size(0), columns = t.param.size(1);
    QUENCH_CHECK(columns % block == 0, "{}: param is {}; its rows must be whole blocks of {} elements", op,
                 t.param.describe(), block);
    check_contiguous(op, "param", t.param);
    QUENCH_CHECK(t.grad.defined() && is_f32_or_bf16(t.grad.dtype()), "{}: grad is {}, expected f32 or bf16", op,
                 t.grad.describe());
    check_tensor(op, "grad", t.grad, t.param.shape(), t.grad.dtype());
    check_contiguous(op, "grad", t.grad);
    const DType codes = args.format == MomentFormat::fp8 ? DType::f8_e4m3 : DType::u8;
    for (const MomentCodes* moment : {&t.exp_avg, &t.exp_avg_sq}) {
      check_tensor(op, "codes", moment->codes, {rows, args.format == MomentFormat::int4 ? columns / 2 : columns},
                   codes);
      check_tensor(op, "scales", moment->scales, {rows, columns / block}, DType::f32);
      check_contiguous(op, "codes", moment->codes);
      check_contiguous(op, "scales", moment->scales);
      check_same_device(op, {&t.param, &t.grad, &moment->codes, &moment->scales, &t.master, &t.amax});
    }
    if (t.master.defined()) {
      check_tensor(op, "master", t.master, t.param.shape(), DType::f32);
      check_contiguous(op, "master", t.master);
      QUENCH_CHECK(t.param.dtype() == DType::bf16, "{}: param is {}; only a bf16 param has a master", op,
                   t.param.describe());
    }
    if (t.amax.defined()) check_tensor(op, "amax", t.amax, {}, DType::f32);
    QUENCH_CHECK(t.element_offset >= 0, "{}: element_offset is {}", op, t.element_offset);
    QUENCH_CHECK(t.param.device() == device, "{}: param is {}, the others are on {}", op, t.param.describe(),
                 device.to_string());
  }
  if (a.grad_scale.defined()) {
    check_tensor(op, "grad_scale", a.grad_scale, {1}, DType::f32);
    check_same_device(op, {&args.tensors.front().param, &a.grad_scale});
  }
  low_bit_adamw_slot(device.type, args);
}

}  // namespace quench
