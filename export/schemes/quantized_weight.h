#pragma once
// A quantized weight of one layer, close to the way it is stored.

#include "core/tensor/packed_matrix.h"
#include "export/schemes/scheme.h"

namespace quench {

// Of a weight [N,K], on the CPU. An element's value is (code - zero point) * scale, with
// IntMapping::float_zero_point code * scale + zero point.
struct QuantizedWeight {
  OperandScheme scheme;
  Shape shape;  // [N,K]
  // Integers: i8 [N,K]. Blocks of GGUF: u8, a row's blocks in a row; then there is nothing else. Floats:
  // payload_dtype() of the element, [N,K].
  Tensor codes;
  // [] for a tensor, [N,1] for rows, [N, K / group_size] for groups, [ceil(N / g), ceil(K / g)] for blocks of g.
  // ScaleForm::high_precision: f32 or bf16 or f16; otherwise f8_e8m0 or f8_e4m3.
  Tensor scales;
  Tensor zero_points;   // like the scales: f32, integers unless the mapping says otherwise. Undefined: 0
  Tensor global_scale;  // f32 [1], ScaleForm::e4m3_two_level: the scales' factor
  // f32 [1], where the scheme's inputs have a scale that calibration found (input_scale()); else undefined.
  Tensor input_scale = {};

  [[nodiscard]] std::size_t nbytes() const;
};

// The form for products; nothing is rounded. Throws corrupt naming `source` where codes or scales are NaN.
[[nodiscard]] PackedMatrix pack(const QuantizedWeight& weight, std::string_view source);

// 10 log10(sum of w^2 / sum of (w - value)^2), in dB; infinite for equal ones.
[[nodiscard]] double signal_to_noise(const Tensor& weight, const PackedMatrix& packed);

}  // namespace quench
