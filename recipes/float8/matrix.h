#pragma once
// A matrix, or a batch of them, quantized rowwise (for GEMMs that reduce over the columns) and columnwise (over the
// rows).

#include <optional>

#include "core/ops/quantize/quant_outputs.h"
#include "core/ops/quantize/quantize.h"
#include "recipes/float8/scheme.h"

namespace quench::recipes {

// Uses of a matrix [R,C] in GEMMs: rowwise (reduction over C, natural orientation) and columnwise (reduction over R,
// transposed).
struct Float8Uses {
  std::optional<Float8Operand> rowwise;
  std::optional<Float8Operand> columnwise;
  bool power_of_two_scales = false;
};

class Float8Matrix {
 public:
  Float8Matrix() = default;
  // Quantizes x for the rowwise use, and with `transpose_now` for the columnwise one too; otherwise only the
  // scales of that are made, which is all that is needed to cast x when it is there again. `fused_outputs` may hold
  // what the producer of x has written already; what is missing is computed. Both uses round with the same draws: under
  // one scale an element has the same code in both.
  Float8Matrix(const Tensor& x, const Float8Uses& uses, const QuantOutputs& fused_outputs, bool transpose_now,
               const Float8Rounding& rounding = {});

  // [R,C], contraction axis last. Undefined without that use.
  [[nodiscard]] const QuantTensor& rowwise() const noexcept { return rowwise_; }
  // [C,R], contraction axis last. Undefined without that use, or not made yet.
  [[nodiscard]] const QuantTensor& columnwise() const noexcept { return columnwise_; }
  // Whether its scales are there.
  [[nodiscard]] bool can_make_columnwise() const noexcept { return columnwise_scale_.defined(); }
  // The same made of x now: the tensor that the constructor saw, or its equal.
  [[nodiscard]] QuantTensor make_columnwise(const Tensor& x) const;
  // Makes those for good.
  void keep_columnwise(const Tensor& x) { columnwise_ = make_columnwise(x); }
  // Give up codes; the scales that make_columnwise() needs stay.
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
