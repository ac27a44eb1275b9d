#pragma once
// A quantized tensor: element codes, scales, and what they mean. Ops that make and undo one:
// core/ops/quantize/quantize.h.

#include <string>

#include "core/number/element_format.h"
#include "core/tensor/tensor.h"

namespace quench {

// Which elements of the logical tensor [.., R, C] share a scale.
enum class Granularity : std::uint8_t {
  tensor,  // all: scales []
  row,     // each row: scales [.., R, 1]
  column,  // each column: scales [.., 1, C]
  block,   // runs of block_size along the payload's last axis: scales [.., R, C / block_size] of the payload's R and C
};
[[nodiscard]] std::string_view to_string(Granularity granularity) noexcept;

// How the payload lies in memory. Blocks and packed codes run along its last axis, so the operand of a matrix product
// that contracts over R is stored transposed.
enum class Orientation : std::uint8_t {
  natural,     // [.., R, C]
  transposed,  // [.., C, R]
};

enum class ScaleDirection : std::uint8_t {
  encode,  // code = cast(x * scale): float8 training
  decode,  // x ~ code * scale: MX and NVFP4
};

struct QuantFormat {
  ElementFormat element = ElementFormat::e4m3;
  Granularity granularity = Granularity::tensor;
  Orientation orientation = Orientation::natural;
  int block_size = 0;              // elements; 0 unless granularity is block
  DType scale_dtype = DType::f32;  // f32; for blocks also f8_e8m0 (MX) and f8_e4m3 (NVFP4)
  ScaleDirection scale_direction = ScaleDirection::encode;

  // "e4m3 by row", "e2m1 by block of 32, transposed"
  [[nodiscard]] std::string to_string() const;
  // Shapes that a logical tensor of this shape has. Throw invalid_argument if the format does not fit it: rank too
  // small, or an axis that blocks do not divide.
  [[nodiscard]] Shape payload_shape(const Shape& logical) const;
  [[nodiscard]] Shape scales_shape(const Shape& logical) const;

  friend bool operator==(const QuantFormat&, const QuantFormat&) = default;
};

// Copying copies the views, never the bytes.
class QuantTensor {
 public:
  QuantTensor() = default;  // undefined
  // Wraps existing tensors; `logical` is the shape of the tensor that was quantized and `source_dtype` its dtype.
  // `global_scale`, a decode multiplier f32 [1], belongs to two-level formats (scale_dtype f8_e4m3). Throws
  // invalid_argument naming the part whose shape, dtype or device does not fit.
  QuantTensor(const QuantFormat& format, const Shape& logical, DType source_dtype, Tensor payload, Tensor scales,
              Tensor global_scale = {});
  // Uninitialised payload and scales.
  static QuantTensor empty(const QuantFormat& format, const Shape& logical, DType source_dtype, Device device = {});

  [[nodiscard]] bool defined() const noexcept { return payload_.defined(); }
  [[nodiscard]] const QuantFormat& format() const noexcept { return format_; }
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }  // logical
  [[nodiscard]] DType source_dtype() const noexcept { return source_dtype_; }
  [[nodiscard]] Device device() const { return payload_.device(); }
  [[nodiscard]] const Tensor& payload() const noexcept { return payload_; }
  [[nodiscard]] const Tensor& scales() const noexcept { return scales_; }
  [[nodiscard]] const Tensor& global_scale() const noexcept { return global_scale_; }  // undefined at one level
  [[nodiscard]] std::size_t nbytes() const;

  // The same bytes seen as the transposed logical matrix: natural and transposed orientation change places, row and
  // column scales too. A matrix product wants its contraction axis last in the payload: an operand that was stored
  // transposed for it is passed as this view. Rank 2 or more; throws invalid_argument for two-level formats.
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
