#pragma once
// Products of operands that are rounded to a low-precision format and back.
//
// Under scales that are powers of two every float8 value is a bf16 value too: the product of the rounded operands on
// bf16 tensor cores, which sum in f32, is the product of their codes. So these layers run on every device; what they
// gain on devices without tensor cores for the format is its numerics, not its speed.

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "core/number/e8m0.h"
#include "core/ops/experts/grouped_float8.h"
#include "core/tensor/quant_tensor.h"

namespace quench::recipes {

// Sees a matrix and the codes that stand for it.
using CodesSeen = std::function<void(const Tensor& x, const QuantTensor& codes)>;

// The rows of experts as products read them; what nobody wants is undefined.
struct RowForms {
  Tensor rowwise;             // contracting over the columns
  Tensor grouped_columnwise;  // contracting over the rows of each group
};
struct WantedForms {
  bool rowwise = false, grouped_columnwise = false;
  bool may_overwrite = false;  // rowwise may take the place of the rows
};

class OperandEmulation {
 public:
  virtual ~OperandEmulation() = default;
  // "mxfp8"
  [[nodiscard]] virtual std::string_view name() const = 0;
  // Of formats of MX with e4m3 elements.
  [[nodiscard]] virtual std::optional<MxScaleMode> mx_mode() const { return std::nullopt; }
  // What the rows of a group must be a multiple of.
  [[nodiscard]] virtual std::int64_t alignment() const = 0;

  // x [R,C] as a product contracting over C reads it.
  [[nodiscard]] virtual Tensor rowwise(const Tensor& x, const CodesSeen& seen) const = 0;
  // Matrices [E,R,C] as products contracting over R of each read them.
  [[nodiscard]] virtual Tensor columnwise(const Tensor& x) const = 0;
  // x [R,C] as products contracting over the rows of each group read it; `ends` i32 [E]
  // (core/ops/experts/grouped_gemm.h), each a multiple of alignment().
  [[nodiscard]] virtual Tensor grouped_columnwise(const Tensor& x, const Tensor& ends) const = 0;
  // Both of them, of rows that may be copies of tokens which nobody has made. `seen`: the codes along the columns.
  [[nodiscard]] virtual RowForms forms(const GroupRows& rows, const WantedForms& wanted, const CodesSeen& seen) const;
  // What grouped_columnwise(x, ends) gives, kept in fewer bytes than x has: calling it makes the same bits. Empty where
  // the format has no codes of that form; then x is kept.
  [[nodiscard]] virtual std::function<Tensor()> saved_grouped_columnwise(const Tensor& /*x*/,
                                                                         const Tensor& /*ends*/) const {
    return {};
  }
};

// MX with e4m3 elements: blocks of 32 along the contraction axis (numerics of TorchAO's MXFP8 training). An axis that
// 32 does not divide is continued with zeros.
[[nodiscard]] std::shared_ptr<const OperandEmulation> mx_rounding(MxScaleMode mode);

// e4m3 with a power-of-two scale for each row (or column) along the contraction axis.
[[nodiscard]] std::shared_ptr<const OperandEmulation> float8_row_rounding();

}  // namespace quench::recipes
