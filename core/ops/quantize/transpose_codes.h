#pragma once
// Float8 codes of a matrix, transposed: a product over the matrix's rows needs its contraction axis last. For codes
// whose values are not there, as after a gather of codes; a cast from values makes the transposed codes by itself
// (core/ops/quantize/quantize.h).

#include "core/device/kernel_slot.h"
#include "core/tensor/quant_tensor.h"

namespace quench {

struct TransposeCodesArgs {
  Tensor from;  // [R,C], one byte an element, contiguous
  Tensor to;    // [C,R], the same dtype, contiguous; another memory
};

extern constinit KernelSlot<TransposeCodesArgs> transpose_codes_slot;

// to[c][r] = from[r][c]. Throws invalid_argument naming the tensor that does not fit.
void transpose_codes(const TransposeCodesArgs& args);

// The same codes and scales with a transposed payload. `natural` is float8 [R,C] in natural orientation, with one scale
// for the tensor or one a column; throws invalid_argument for others.
[[nodiscard]] QuantTensor with_transposed_payload(const QuantTensor& natural);

}  // namespace quench
