#include "core/ops/quantize/quant_error.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<QuantErrorArgs> quant_error_slot("quant_error");

QuantError QuantError::read(const Tensor& out) {
  check_tensor("quant_error", "out", out, {kFields}, DType::f64);
  const Tensor host = out.to(Device{});
  const double* fields = host.data<double>();
  return {fields[0], fields[1], fields[2], fields[3], fields[4]};
}

void quant_error(const QuantErrorArgs& args) {
  constexpr std::string_view op = "quant_error";
  const auto& [x, q, out] = args;
  check_float_tensor(op, "x", x, 2);
  check_contiguous(op, "x", x);
  const QuantFormat& format = q.format();
  QUENCH_CHECK(q.defined() && q.shape() == x.shape() && is_8_bit(format.element) &&
                   format.granularity != Granularity::block &&
                   format == code_format(format.element, format.granularity),
               "quant_error: q is {}; expected x {} as e4m3, e5m2 or int8 with scales by tensor, row or column, not "
               "transposed",
               q.describe(), x.describe());
  check_tensor(op, "out", out, {QuantError::kFields}, DType::f64);
  check_contiguous(op, "out", out);
  check_same_device(op, {&x, &q.payload(), &out});
  if (x.numel() > 0) return quant_error_slot(x.device().type, args);
  Tensor zeros = out;
  zeros.zero();
}

}  // namespace quench
