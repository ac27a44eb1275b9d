#include "recipes/float8/matrix.h"

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

}  // namespace

Float8Matrix::Float8Matrix(const Tensor& x, const Float8Uses& uses, const QuantOutputs& fused_outputs,
                           bool transpose_now, const Float8Rounding& rounding)
    : rows_operand_(uses.along_rows), rounding_(rounding) {
  const auto& columns = uses.along_columns;
  const auto& rows = uses.along_rows;
  const bool power_of_two = uses.power_of_two_scales;

  Tensor scale;  // of the whole tensor; e4m3 and e5m2 have different ones
  ElementFormat scale_element = ElementFormat::e4m3;
  const auto tensor_scale = [&](ElementFormat element) {
    if (scale.defined() && scale_element == element) return scale;
    scale = float8_scale(fused_outputs.amax.defined() ? fused_outputs.amax : amax(x, Granularity::tensor), element,
                         power_of_two);
    scale_element = element;
    return scale;
  };

  if (transpose_now && has(columns, Float8Scaling::tensor) && has(rows, Float8Scaling::tensor) &&
      columns->element == rows->element) {
    rows_scale_ = tensor_scale(rows->element);
    const Float8Pair pair = cast_float8_pair(x, rows_scale_, rows->element, rounding);
    along_columns_ = pair.natural;
    along_rows_ = pair.transposed.transposed_view();
    return;
  }

  Tensor column_amax = fused_outputs.column_amax;
  if (has(columns, Float8Scaling::row)) {
    if (fused_outputs.rows.defined() && fused_outputs.rows.format().element == columns->element &&
        fused_outputs.power_of_two == power_of_two && !rounding.key) {
      along_columns_ = fused_outputs.rows;
    } else {
      if (has(rows, Float8Scaling::row) && !column_amax.defined()) column_amax = zero_column_maxima(x);
      along_columns_ = quantize_float8_rows(x, columns->element, power_of_two,
                                            fused_outputs.column_amax.defined() ? Tensor() : column_amax, rounding);
    }
  } else if (columns) {
    along_columns_ = cast_float8(x, tensor_scale(columns->element), columns->element, Granularity::tensor,
                                 Orientation::natural, rounding);
  }

  if (!rows) return;
  if (rows->scaling == Float8Scaling::tensor) {
    rows_scale_ = tensor_scale(rows->element);
  } else {
    if (!column_amax.defined()) column_amax = amax(x, Granularity::column);
    rows_scale_ = float8_scale(column_amax, rows->element, power_of_two);
  }
  if (transpose_now) along_rows_ = make_along_rows(x);
}

QuantTensor Float8Matrix::make_along_rows(const Tensor& x) const {
  if (along_rows_.defined()) return along_rows_;
  QUENCH_CHECK(rows_operand_ && rows_scale_.defined(), "Float8Matrix: no use along rows was asked for");
  const Granularity granularity =
      rows_operand_->scaling == Float8Scaling::tensor ? Granularity::tensor : Granularity::column;
  return cast_float8(x, rows_scale_, rows_operand_->element, granularity, Orientation::transposed, rounding_)
      .transposed_view();
}

void Float8Matrix::drop_codes() {
  along_columns_ = {};
  along_rows_ = {};
}

}  // namespace quench::recipes
