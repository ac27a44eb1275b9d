#pragma once
// Fused quantization outputs: a producer quantizes in registers for its float8 consumer.
//
// Bit-identical to quantize.h on the stored result; every field is optional.

#include "core/tensor/quant_tensor.h"

namespace quench {

struct QuantOutputs {
  // f32 [], in/out: maximum with the result's amax; NaN if an element is.
  Tensor amax;
  // `amax` held amax of other values before: not that of the result.
  bool accumulates_amax = false;
  // Rowwise quantized result [N,C].
  QuantTensor rows;
  bool power_of_two = false;  // scales of `rows`
  // f32 [1,C], in/out: columnwise amax.
  Tensor column_amax;
  // Float8 [N,C] under the tensorwise encode scale given in them; payload natural and transposed. With one of them the
  // result itself may be left out.
  QuantTensor codes, transposed_codes;

  [[nodiscard]] bool has_codes() const noexcept { return codes.defined() || transposed_codes.defined(); }
  [[nodiscard]] bool wanted() const noexcept {
    return amax.defined() || rows.defined() || column_amax.defined() || has_codes();
  }
  // The result's own amax; undefined: not known.
  [[nodiscard]] Tensor own_amax() const { return accumulates_amax ? Tensor() : amax; }
};

// `result` of the given shape, contiguous; undefined only next to codes.
void check_quant_outputs(std::string_view op, const QuantOutputs& quant_outputs, const Tensor& result,
                         const Shape& shape);
inline void check_quant_outputs(std::string_view op, const QuantOutputs& quant_outputs, const Tensor& result) {
  check_quant_outputs(op, quant_outputs, result, result.shape());
}

// Unfused, on a contiguous result [N,C].
void fill_quant_outputs(const QuantOutputs& quant_outputs, const Tensor& result);

}  // namespace quench
