#pragma once
// Transpose of float8 values, for GEMMs that reduce over the rows after an all-gather of quantized weights.

#include "core/device/kernel_slot.h"
#include "core/tensor/quant_tensor.h"

namespace quench {

struct TransposeCodesArgs {
  Tensor from;  // [R,C], 1-byte dtype, contiguous
  Tensor to;    // [C,R], same dtype, contiguous; no aliasing
};

extern constinit KernelSlot<TransposeCodesArgs> transpose_codes_slot;

// to[c][r] = from[r][c].
void transpose_codes(const TransposeCodesArgs& args);

// Same scales, transposed payload. float8 [R,C], natural orientation, tensorwise or columnwise.
[[nodiscard]] QuantTensor with_transposed_payload(const QuantTensor& natural);

}  // namespace quench
