#pragma once
// Close to its stored form.

#include "core/tensor/packed_matrix.h"
#include "export/schemes/scheme.h"

namespace quench {

// [N,K], CPU. Dequantization: (code - zero point) * scale; with IntMapping::float_zero_point code * scale + zero point.
struct QuantizedWeight {
  OperandScheme scheme;
  Shape shape;  // [N,K]
  // Integers: i8 [N,K]. GGUF blocks: u8, no other members. Floats: payload_dtype() of the element, [N,K].
  Tensor codes;
  // [] per tensor, [N,1] per row, [N, K / group_size] per group, [ceil(N / g), ceil(K / g)] per block.
  // ScaleForm::high_precision: f32, bf16 or f16; else f8_e8m0 or f8_e4m3.
  Tensor scales;
  Tensor zero_points;   // as the scales, f32, integers unless float_zero_point. Undefined: 0
  Tensor global_scale;  // f32 [1], ScaleForm::e4m3_two_level: factor
  // f32 [1] for static inputs (input_scale()); else undefined.
  Tensor input_scale = {};

  [[nodiscard]] std::size_t nbytes() const;
};

// Without rounding. Throws corrupt naming `source` for NaN values or scales.
[[nodiscard]] PackedMatrix pack(const QuantizedWeight& weight, std::string_view source);

// 10 log10(sum of w^2 / sum of (w - value)^2), dB; infinite if equal.
[[nodiscard]] double signal_to_noise(const Tensor& weight, const PackedMatrix& packed);

}  // namespace quench
