#pragma once
// One matrix, or a batch of them, quantized for the two products that contract it along one and the other of its axes.

#include <optional>

#include "core/ops/quantize/quant_outputs.h"
#include "core/ops/quantize/quantize.h"
#include "recipes/float8/scheme.h"

namespace quench::recipes {

// How a matrix [R,C] takes part in products: along its columns (contraction over C, read as it lies) and along its rows
// (contraction over R, read transposed).
struct Float8Uses {
  std::optional<Float8Operand> along_columns;
  std::optional<Float8Operand> along_rows;
  bool power_of_two_scales = false;
};

class Float8Matrix {
 public:
  Float8Matrix() = default;
  // Quantizes x for the use along columns, and with `transpose_now` for the one along rows too; otherwise only the
  // scales of that are made, which is all that is needed to cast x when it is there again. `fused_outputs` may hold
  // what the producer of x has written already; what is missing is computed. Both uses round with the same draws: under
  // one scale an element has the same code in both.
  Float8Matrix(const Tensor& x, const Float8Uses& uses, const QuantOutputs& fused_outputs, bool transpose_now,
               const Float8Rounding& rounding = {});

  // [R,C], contraction axis last. Undefined without that use.
  [[nodiscard]] const QuantTensor& along_columns() const noexcept { return along_columns_; }
  // [C,R], contraction axis last. Undefined without that use, or not made yet.
  [[nodiscard]] const QuantTensor& along_rows() const noexcept { return along_rows_; }
  // Whether its scales are there.
  [[nodiscard]] bool can_make_along_rows() const noexcept { return rows_scale_.defined(); }
  // The same made of x now: the tensor that the constructor saw, or its equal.
  [[nodiscard]] QuantTensor make_along_rows(const Tensor& x) const;
  // Makes those for good.
  void keep_along_rows(const Tensor& x) { along_rows_ = make_along_rows(x); }
  // Give up codes; the scales that make_along_rows() needs stay.
  void drop_columns() { along_columns_ = {}; }
  void drop_codes();

 private:
  QuantTensor along_columns_;
  QuantTensor along_rows_;
  std::optional<Float8Operand> rows_operand_;
  Tensor rows_scale_;  // encode scale of the use along rows: [] or [1,C]
  Float8Rounding rounding_;
};

}  // namespace quench::recipes
