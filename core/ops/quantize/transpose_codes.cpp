#include "core/ops/quantize/transpose_codes.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<TransposeCodesArgs> transpose_codes_slot("transpose_codes");

void transpose_codes(const TransposeCodesArgs& args) {
  constexpr std::string_view op = "transpose_codes";
  QUENCH_CHECK(args.from.defined() && args.from.rank() == 2 && bit_width(args.from.dtype()) == 8,
               "transpose_codes: from is {}, expected a matrix of one byte an element", args.from.describe());
  check_contiguous(op, "from", args.from);
  check_tensor(op, "to", args.to, {args.from.size(1), args.from.size(0)}, args.from.dtype());
  check_contiguous(op, "to", args.to);
  check_same_device(op, {&args.from, &args.to});
  if (args.from.numel() > 0) transpose_codes_slot(args.to.device().type, args);
}

QuantTensor with_transposed_payload(const QuantTensor& natural) {
  QUENCH_CHECK(natural.defined(), "with_transposed_payload: the codes are undefined");
  QuantFormat format = natural.format();
  QUENCH_CHECK(natural.shape().rank() == 2 && format.orientation == Orientation::natural &&
                   (format.granularity == Granularity::tensor || format.granularity == Granularity::column),
               "with_transposed_payload: {}, expected a matrix in natural orientation, by tensor or by column",
               natural.describe());
  format.orientation = Orientation::transposed;
  const Tensor payload =
      Tensor::empty(format.payload_shape(natural.shape()), natural.payload().dtype(), natural.device());
  transpose_codes({natural.payload(), payload});
  return {format, natural.shape(), natural.source_dtype(), payload, natural.scales()};
}

}  // namespace quench
