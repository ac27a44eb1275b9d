#pragma once
// Emulation of low-precision GEMMs by quantize-dequantize, on any device. With power-of-two scales every float8 value
// is exact in bf16: a bf16 GEMM with f32 accumulators over dequantized operands equals the float8 GEMM.

#include <functional>
#include <memory>
#include <string_view>

#include "autograd/fused_value.h"
#include "core/number/e8m0.h"
#include "core/ops/experts/grouped_float8.h"
#include "core/tensor/quant_tensor.h"

namespace quench::recipes {

using CodesSeen = std::function<void(const Tensor& x, const QuantTensor& codes)>;

// Operand forms of expert rows; undefined if not requested.
struct RowForms {
  Tensor rowwise;
  Tensor grouped_columnwise;
};
struct WantedForms {
  bool rowwise = false, grouped_columnwise = false;
  bool may_overwrite = false;  // may be written in place of the rows
};

class OperandEmulation {
 public:
  virtual ~OperandEmulation() = default;
  // "mxfp8"
  [[nodiscard]] virtual std::string_view name() const = 0;
  // Request for rowwise(x) in place of x, by which a producer may fuse it; nullptr if no op does. One object for all
  // layers of this emulation.
  [[nodiscard]] virtual std::shared_ptr<const autograd::ValueSubstitution> rowwise_request() const { return nullptr; }
  // Required multiple of a group's row count.
  [[nodiscard]] virtual std::int64_t alignment() const = 0;

  // x [R,C] quantize-dequantized for a GEMM that reduces over C.
  [[nodiscard]] virtual Tensor rowwise(const Tensor& x, const CodesSeen& seen) const = 0;
  // Matrices [E,R,C], each for a GEMM that reduces over R.
  [[nodiscard]] virtual Tensor columnwise(const Tensor& x) const = 0;
  // x [R,C] for a GEMM that reduces over the rows of each group; `ends` i32 [E] (core/ops/experts/grouped_gemm.h),
  // multiples of alignment().
  [[nodiscard]] virtual Tensor grouped_columnwise(const Tensor& x, const Tensor& ends) const = 0;
  // Both forms, also of unmaterialised token copies. `seen`: rowwise.
  [[nodiscard]] virtual RowForms forms(const GroupRows& rows, const WantedForms& wanted, const CodesSeen& seen) const;
  // grouped_columnwise(x, ends) in fewer bytes than x, bit-identical when called. Empty if not supported; then x is
  // saved.
  [[nodiscard]] virtual std::function<Tensor()> saved_grouped_columnwise(const Tensor& /*x*/,
                                                                         const Tensor& /*ends*/) const {
    return {};
  }
};

// MX with e4m3 elements in blocks of 32 along the reduction axis (TorchAO's MXFP8 training). Partial blocks are
// zero-padded.
[[nodiscard]] std::shared_ptr<const OperandEmulation> mx_rounding(MxScaleMode mode);

// e4m3 with a power-of-two scale per row (or column).
[[nodiscard]] std::shared_ptr<const OperandEmulation> float8_row_rounding();

}  // namespace quench::recipes
