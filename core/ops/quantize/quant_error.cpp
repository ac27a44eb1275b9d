#include "core/ops/quantize/quant_error.h"

#include "core/ops/op_checks.h"

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
  QUENCH_CHECK(q.defined() && q.shape() == x.shape() &&
                   (format.element == ElementFormat::e4m3 || format.element == ElementFormat::e5m2) &&
                   format.orientation == Orientation::natural && format.scale_dtype == DType::f32 &&
                   format.scale_direction == ScaleDirection::encode && format.granularity != Granularity::block,
               "quant_error: q is {}; expected x {} as e4m3 or e5m2 with encode scales by tensor, row or column, not "
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
