#pragma once
// Fused quantization outputs: float8 values and amax of an activation or gradient, written by the kernel that makes it.
// They save the float8 consumer a pass over memory.
//
// Ops that take quantization outputs fill them with what the separate ops of core/ops/quantize/quantize.h would make of
// their stored result, bit for bit. Every field may be undefined: not wanted.

#include "core/tensor/quant_tensor.h"

namespace quench {

struct QuantOutputs {
  // f32 [], starts at 0 (or an earlier maximum): becomes the largest magnitude of the result; NaN if an element is NaN.
  Tensor amax;
  // The result [N,C] by row, natural orientation: scales and codes are written.
  QuantTensor rows;
  bool power_of_two = false;  // scales of `rows`
  // f32 [1,C], starts at 0 (or an earlier maximum): as amax for each column.
  Tensor column_amax;

  [[nodiscard]] bool wanted() const noexcept { return amax.defined() || rows.defined() || column_amax.defined(); }
};

// For the entry points of ops: throws invalid_argument naming the part that does not fit the result.
void check_quant_outputs(std::string_view op, const QuantOutputs& quant_outputs, const Tensor& result);

// Fills quantization outputs from a finished result [N,C], contiguous: for kernels without fused quantization.
void fill_quant_outputs(const QuantOutputs& quant_outputs, const Tensor& result);

}  // namespace quench
