#pragma once
// Matrix or batch, quantized rowwise (for GEMMs that reduce over the columns) and columnwise (over the rows).

#include <optional>

#include "autograd/fused_value.h"
#include "core/ops/quantize/quant_outputs.h"
#include "core/ops/quantize/quantize.h"
#include "recipes/delayed_scaling.h"
#include "recipes/float8/scheme.h"

namespace quench::recipes {

struct Float8Uses {
  std::optional<Float8Operand> rowwise;
  std::optional<Float8Operand> columnwise;
  bool power_of_two_scales = false;
};

class Float8Matrix {
 public:
  Float8Matrix() = default;
  // Quantizes x rowwise and, with `transpose_now`, columnwise; otherwise only the columnwise scales are made. Missing
  // `fused_outputs` are computed. Both uses round with the same draws. `scaling`: of tensorwise uses, which then have
  // one element format; its amax is recorded once, by the producer (QuantOutputs::amax is scaling.recorded) or here.
  // Throws invalid_argument if the producer of another value recorded it (scaling.raised).
  Float8Matrix(const Tensor& x, const Float8Uses& uses, const QuantOutputs& fused_outputs, bool transpose_now,
               const Float8Rounding& rounding = {}, const OperandScaling& scaling = {});

  // [R,C]. Undefined without that use.
  [[nodiscard]] const QuantTensor& rowwise() const noexcept { return rowwise_; }
  // [C,R]. Undefined without that use, or if not made yet.
  [[nodiscard]] const QuantTensor& columnwise() const noexcept { return columnwise_; }
  [[nodiscard]] bool can_make_columnwise() const noexcept { return columnwise_scale_.defined(); }
  // x must equal the constructor's tensor.
  [[nodiscard]] QuantTensor make_columnwise(const Tensor& x) const;
  // For a producer that recomputes x: transposed codes that are the columnwise form. Empty unless
  // tensorwise, rounded to nearest.
  [[nodiscard]] autograd::QuantOutputRequest columnwise_request() const;
  void keep_columnwise(const Tensor& x) { columnwise_ = make_columnwise(x); }
  // Scales stay.
  void drop_rowwise() { rowwise_ = {}; }
  void drop_codes();

 private:
  QuantTensor rowwise_;
  QuantTensor columnwise_;
  std::optional<Float8Operand> columnwise_operand_;
  Tensor columnwise_scale_;  // encode scale of the columnwise use: [] or [1,C]
  Float8Rounding rounding_;
};

}  // namespace quench::recipes
