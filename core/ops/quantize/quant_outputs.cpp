#include "core/ops/quantize/quant_outputs.h"

#include "core/ops/quantize/quantize.h"
#include "core/tensor/op_checks.h"

namespace quench {
namespace {

// NaN-propagating maximum: columnwise amax of the two as rows.
void raise(const Tensor& maximum, const Tensor& x) {
  const std::int64_t count = maximum.numel();
  const Tensor both = Tensor::empty({2, count}, DType::f32, maximum.device());
  both.narrow(0, 0, 1).view({count}).copy_from(maximum.view({count}));
  both.narrow(0, 1, 1).view({count}).copy_from(x.view({count}));
  maximum.view({count}).copy_from(amax(both, Granularity::column).view({count}));
}

void check_codes(std::string_view op, const QuantTensor& codes, Orientation orientation, const Shape& shape) {
  if (!codes.defined()) return;
  const QuantFormat& format = codes.format();
  QUENCH_CHECK(codes.shape() == shape && is_8_bit(format.element) && format.element != ElementFormat::int8 &&
                   format == code_format(format.element, Granularity::tensor, orientation),
               "{}: quant_outputs has codes {}, expected {} as float8 under one scale, {}", op, codes.describe(),
               shape.to_string(), orientation == Orientation::natural ? "as it is" : "transposed");
}

}  // namespace

void check_quant_outputs(std::string_view op, const QuantOutputs& quant_outputs, const Tensor& result,
                         const Shape& shape) {
  QUENCH_CHECK(result.defined() || quant_outputs.has_codes(), "{}: neither the result nor codes of it are given", op);
  if (!quant_outputs.wanted()) return;
  QUENCH_CHECK(!quant_outputs.has_codes() || (!quant_outputs.rows.defined() && !quant_outputs.column_amax.defined()),
               "{}: quantization outputs by row or column next to codes under a given scale", op);
  check_codes(op, quant_outputs.codes, Orientation::natural, shape);
  check_codes(op, quant_outputs.transposed_codes, Orientation::transposed, shape);
  if (quant_outputs.amax.defined()) check_tensor(op, "quant_outputs.amax", quant_outputs.amax, {}, DType::f32);
  check_same_device(
      op, {&result, &quant_outputs.amax, &quant_outputs.codes.payload(), &quant_outputs.transposed_codes.payload()});
  if (!result.defined()) return;
  QUENCH_CHECK(result.rank() == 2 && result.is_contiguous(),
               "{}: quantization outputs need a contiguous matrix, not {}", op, result.describe());
  if (quant_outputs.column_amax.defined()) {
    check_tensor(op, "quant_outputs.column_amax", quant_outputs.column_amax, {1, result.size(1)}, DType::f32);
    check_contiguous(op, "quant_outputs.column_amax", quant_outputs.column_amax);
  }
  if (quant_outputs.rows.defined()) {
    const QuantFormat& format = quant_outputs.rows.format();
    QUENCH_CHECK(quant_outputs.rows.shape() == result.shape() && is_8_bit(format.element) &&
                     format == code_format(format.element, Granularity::row),
                 "{}: quant_outputs.rows is {}, expected {} as 8-bit codes by row", op, quant_outputs.rows.describe(),
                 result.shape().to_string());
  }
  check_same_device(op, {&result, &quant_outputs.amax, &quant_outputs.column_amax, &quant_outputs.rows.payload()});
}

void fill_quant_outputs(const QuantOutputs& quant_outputs, const Tensor& result) {
  if (!quant_outputs.wanted()) return;
  const DeviceType device = result.device().type;
  const MemoryScope scope(MemoryCategory::workspace);
  if (quant_outputs.amax.defined()) raise_amax(result, quant_outputs.amax);
  if (result.size(0) == 0) return;  // neither scales nor amax change
  if (quant_outputs.has_codes()) {
    const QuantTensor &natural = quant_outputs.codes, &transposed = quant_outputs.transposed_codes;
    const bool pair = natural.defined() && transposed.defined() &&
                      natural.scales().raw_data() == transposed.scales().raw_data() &&
                      natural.format().element == transposed.format().element;
    if (pair) float8_cast_slot(device, {.x = result, .out = natural, .transposed = transposed});
    if (!pair && natural.defined()) float8_cast_slot(device, {.x = result, .out = natural, .transposed = {}});
    if (!pair && transposed.defined()) float8_cast_slot(device, {.x = result, .out = {}, .transposed = transposed});
  }
  if (quant_outputs.rows.defined())
    float8_rows_slot(device, {result, quant_outputs.rows, quant_outputs.power_of_two, quant_outputs.column_amax});
  else if (quant_outputs.column_amax.defined())
    raise(quant_outputs.column_amax, amax(result, Granularity::column));
}

}  // namespace quench
