#include "recipes/float8/matrix.h"

#include "core/ops/quantize/transpose_codes.h"

#include <utility>

namespace quench::recipes {
namespace {

bool has(const std::optional<Float8Operand>& operand, Float8Scaling scaling) {
  return operand && operand->scaling == scaling;
}

// f32 [.., 1, C]
Tensor zero_column_maxima(const Tensor& x) {
  constexpr QuantFormat kColumns{.granularity = Granularity::column};
  return Tensor::zeros(kColumns.scales_shape(x.shape()), DType::f32, x.device());
}

bool is_recorded(const OperandScaling& scaling, const QuantOutputs& fused_outputs) {
  return scaling.recorded.defined() && fused_outputs.accumulates_amax &&
         fused_outputs.amax.raw_data() == scaling.recorded.raw_data();
}

bool are_under(const Tensor& scale, const QuantOutputs& fused_outputs, const Float8Rounding& rounding) {
  const QuantTensor& codes = fused_outputs.codes.defined() ? fused_outputs.codes : fused_outputs.transposed_codes;
  return scale.defined() && codes.scales().raw_data() == scale.raw_data() && !rounding.key;
}

}  // namespace

Float8Matrix::Float8Matrix(const Tensor& x, const Float8Uses& uses, const QuantOutputs& fused_outputs,
                           bool transpose_now, const Float8Rounding& rounding, const OperandScaling& scaling)
    : columnwise_operand_(uses.columnwise), rounding_(rounding) {
  const auto& columns = uses.rowwise;
  const auto& rows = uses.columnwise;
  const bool power_of_two = uses.power_of_two_scales;

  const bool tensorwise = has(columns, Float8Scaling::tensor) || has(rows, Float8Scaling::tensor);
  Tensor own_amax = fused_outputs.own_amax();
  if (tensorwise && !scaling.scale.defined() && !own_amax.defined()) own_amax = amax(x, Granularity::tensor);
  const bool recorded = is_recorded(scaling, fused_outputs);
  QUENCH_CHECK(scaling.raised == nullptr || !std::exchange(*scaling.raised, false) || recorded,
               "float8 operand of shape {}: the producer of another value recorded its amax for this one; a layer's "
               "input_quant_request() is for the op alone whose result the layer reads",
               x.shape().to_string());
  Tensor unrecorded = tensorwise && !recorded ? scaling.recorded : Tensor();
  if (unrecorded.defined() && own_amax.defined()) raise_amax(own_amax, std::exchange(unrecorded, Tensor()));

  if (fused_outputs.has_codes() && are_under(scaling.scale, fused_outputs, rounding)) {
    if (unrecorded.defined()) raise_amax(x, unrecorded);
    if (columns) rowwise_ = fused_outputs.codes;
    if (rows) columnwise_scale_ = scaling.scale;
    if (rows && transpose_now)
      columnwise_ = fused_outputs.transposed_codes.defined()
                        ? fused_outputs.transposed_codes.transposed_view()
                        : with_transposed_payload(fused_outputs.codes).transposed_view();
    return;
  }

  Tensor scale = scaling.scale;  // tensorwise scale; its own differs between e4m3 and e5m2
  ElementFormat scale_element = ElementFormat::e4m3;
  const auto tensor_scale = [&](ElementFormat element) {
    if (scale.defined() && (scaling.scale.defined() || scale_element == element)) return scale;
    scale = float8_scale(own_amax, element, power_of_two, x.dtype());
    scale_element = element;
    return scale;
  };

  if (transpose_now && has(columns, Float8Scaling::tensor) && has(rows, Float8Scaling::tensor) &&
      columns->element == rows->element) {
    columnwise_scale_ = tensor_scale(rows->element);
    const Float8Pair pair = cast_float8_pair(x, columnwise_scale_, rows->element, rounding, unrecorded);
    rowwise_ = pair.natural;
    columnwise_ = pair.transposed.transposed_view();
    return;
  }

  Tensor column_amax = fused_outputs.column_amax;
  if (has(columns, Float8Scaling::row)) {
    if (fused_outputs.rows.defined() && fused_outputs.rows.format().element == columns->element &&
        fused_outputs.power_of_two == power_of_two && !rounding.key) {
      rowwise_ = fused_outputs.rows;
    } else {
      if (has(rows, Float8Scaling::row) && !column_amax.defined()) column_amax = zero_column_maxima(x);
      rowwise_ = quantize_float8_rows(x, columns->element, power_of_two,
                                      fused_outputs.column_amax.defined() ? Tensor() : column_amax, rounding);
    }
  } else if (columns) {
    rowwise_ = cast_float8(x, tensor_scale(columns->element), columns->element, Granularity::tensor,
                           Orientation::natural, rounding, std::exchange(unrecorded, Tensor()));
  }
  if (unrecorded.defined()) raise_amax(x, unrecorded);

  if (!rows) return;
  if (rows->scaling == Float8Scaling::tensor) {
    columnwise_scale_ = tensor_scale(rows->element);
  } else {
    if (!column_amax.defined()) column_amax = amax(x, Granularity::column);
    columnwise_scale_ = float8_scale(column_amax, rows->element, power_of_two, x.dtype());
  }
  if (transpose_now) columnwise_ = make_columnwise(x);
}

QuantTensor Float8Matrix::make_columnwise(const Tensor& x) const {
  if (columnwise_.defined()) return columnwise_;
  QUENCH_CHECK(columnwise_operand_ && columnwise_scale_.defined(), "Float8Matrix: no columnwise operand was requested");
  const Granularity granularity =
      columnwise_operand_->scaling == Float8Scaling::tensor ? Granularity::tensor : Granularity::column;
  return cast_float8(x, columnwise_scale_, columnwise_operand_->element, granularity, Orientation::transposed,
                     rounding_)
      .transposed_view();
}

autograd::QuantOutputRequest Float8Matrix::columnwise_request() const {
  autograd::QuantOutputRequest request;
  if (columnwise_.defined() || !columnwise_operand_ || columnwise_operand_->scaling != Float8Scaling::tensor ||
      rounding_.key)
    return request;
  request.scale = columnwise_scale_;
  request.element = columnwise_operand_->element;
  request.natural_codes = request.value_needed = false;
  request.transposed_codes = true;
  return request;
}

void Float8Matrix::drop_codes() {
  rowwise_ = {};
  columnwise_ = {};
}

}  // namespace quench::recipes
