#pragma once
// Quantized tensor: payload, scales and format (quantize.h).

#include <string>

#include "core/number/element_format.h"
#include "core/tensor/tensor.h"

namespace quench {

// Scales of the logical tensor [.., R, C].
enum class Granularity : std::uint8_t {
  tensor,  // []
  row,     // [.., R, 1]
  column,  // [.., 1, C]
  block,   // block_size elements of the payload's last axis: [.., R, C / block_size] of the payload
};
[[nodiscard]] std::string_view to_string(Granularity granularity) noexcept;

// Blocks and packed values run along the payload's last axis: operands of GEMMs that reduce over R are stored
// transposed.
enum class Orientation : std::uint8_t {
  natural,     // [.., R, C]
  transposed,  // [.., C, R]
};

// Meaning of a stored scale.
enum class ScaleDirection : std::uint8_t {
  encode,  // cast(x * scale): float8
  decode,  // code * scale: MX, NVFP4
};

// Layout of codes and scales.
struct QuantFormat {
  ElementFormat element = ElementFormat::e4m3;
  Granularity granularity = Granularity::tensor;
  Orientation orientation = Orientation::natural;
  int block_size = 0;              // 0 unless granularity is block
  DType scale_dtype = DType::f32;  // f32; blocks also f8_e8m0 (MX), f8_e4m3 (NVFP4)
  ScaleDirection scale_direction = ScaleDirection::encode;

  // "e4m3 by row", "e2m1 by block of 32, transposed"
  [[nodiscard]] std::string to_string() const;
  // Throw invalid_argument if the rank is too small or blocks do not divide the axis.
  [[nodiscard]] Shape payload_shape(const Shape& logical) const;
  [[nodiscard]] Shape scales_shape(const Shape& logical) const;

  friend bool operator==(const QuantFormat&, const QuantFormat&) = default;
};

// 8-bit codes with one f32 scale per tensor, row or column: decode scales of int8, encode scales of float8.
[[nodiscard]] QuantFormat code_format(ElementFormat element, Granularity granularity,
                                      Orientation orientation = Orientation::natural) noexcept;

// Copies are views.
class QuantTensor {
 public:
  QuantTensor() = default;
  // logical: source shape; global_scale: f32 [1] decode scale of two-level formats (scale_dtype f8_e4m3). Throws
  // invalid_argument naming the mismatched shape, dtype or device.
  QuantTensor(const QuantFormat& format, const Shape& logical, DType source_dtype, Tensor payload, Tensor scales,
              Tensor global_scale = {});
  // Uninitialized.
  static QuantTensor empty(const QuantFormat& format, const Shape& logical, DType source_dtype, Device device = {});

  [[nodiscard]] bool defined() const noexcept { return payload_.defined(); }
  [[nodiscard]] const QuantFormat& format() const noexcept { return format_; }
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }  // logical
  [[nodiscard]] DType source_dtype() const noexcept { return source_dtype_; }
  [[nodiscard]] Device device() const { return payload_.device(); }
  [[nodiscard]] const Tensor& payload() const noexcept { return payload_; }
  [[nodiscard]] const Tensor& scales() const noexcept { return scales_; }
  [[nodiscard]] const Tensor& global_scale() const noexcept { return global_scale_; }  // undefined with one level
  [[nodiscard]] std::size_t nbytes() const;

  // Transposed logical matrix over the same bytes, for K-major GEMMs: swaps orientations, row and column scales. Rank
  // >= 2; throws invalid_argument for two-level formats.
  [[nodiscard]] QuantTensor transposed_view() const;

  [[nodiscard]] std::string describe() const;  // "[128, 64] as e4m3 by row on cpu"

 private:
  QuantFormat format_;
  Shape shape_;
  DType source_dtype_ = DType::f32;
  Tensor payload_;
  Tensor scales_;
  Tensor global_scale_;
};

}  // namespace quench
