#include "core/ops/optimizer/multiplicative_update.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<MultiplicativeUpdateArgs> multiplicative_update_slot("multiplicative_update");

void multiplicative_update(const MultiplicativeUpdateArgs& args) {
  constexpr std::string_view op = "multiplicative_update";
  QUENCH_CHECK(args.step >= 1, "{}: step {}; the first step is 1", op, args.step);
  if (args.tensors.empty()) return;
  for (const MultiplicativeUpdateTensor& t : args.tensors) {
    QUENCH_CHECK(t.param.defined() && is_f32_or_bf16(t.param.dtype()), "{}: param is {}, expected f32 or bf16", op,
                 t.param.describe());
    check_contiguous(op, "param", t.param);
    check_tensor(op, "relative", t.relative, t.param.shape(), DType::f32);
    check_contiguous(op, "relative", t.relative);
    if (t.master.defined()) {
      check_tensor(op, "master", t.master, t.param.shape(), DType::f32);
      check_contiguous(op, "master", t.master);
      QUENCH_CHECK(t.param.dtype() == DType::bf16, "{}: param is {}; only a bf16 param has a master", op,
                   t.param.describe());
    }
    check_same_device(op, {&args.tensors.front().param, &t.param, &t.relative, &t.master});
    QUENCH_CHECK(t.element_offset >= 0, "{}: element_offset is {}", op, t.element_offset);
  }
  multiplicative_update_slot(args.tensors.front().param.device().type, args);
}

}  // namespace quench
