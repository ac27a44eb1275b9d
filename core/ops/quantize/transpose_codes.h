#pragma once
// Transpose of float8 values for GEMMs that reduce over the rows, where the originals are unavailable (after an
// all-gather of quantized weights). Casts write transposed values directly (core/ops/quantize/quantize.h).

#include "core/device/kernel_slot.h"
#include "core/tensor/quant_tensor.h"

namespace quench {

struct TransposeCodesArgs {
  Tensor from;  // [R,C], 1-byte dtype, contiguous
  Tensor to;    // [C,R], same dtype, contiguous; no aliasing
};

extern constinit KernelSlot<TransposeCodesArgs> transpose_codes_slot;

// to[c][r] = from[r][c]. Throws invalid_argument naming the mismatched tensor.
void transpose_codes(const TransposeCodesArgs& args);

// Transposed payload with the same scales. `natural`: float8 [R,C], natural orientation, tensorwise or columnwise; else
// throws invalid_argument.
[[nodiscard]] QuantTensor with_transposed_payload(const QuantTensor& natural);

}  // namespace quench
