#pragma once
// Casts to the low-precision formats and back. The formulas are TorchAO's, bit for bit on finite input: division is
// IEEE f32 division on every device, a product is never fused with a sum, and results do not depend on threads or
// tiles.
//
// Inputs are f32 or bf16 and contiguous; bf16 is widened exactly and all arithmetic is f32. A tensor of rank above 2
// is a batch of matrices over its last two axes. Every op throws invalid_argument naming the tensor that does not fit.

#include <optional>

#include "core/device/kernel_slot.h"
#include "core/number/e8m0.h"
#include "core/number/nvfp4.h"
#include "core/number/random.h"
#include "core/tensor/quant_tensor.h"
#include "core/tensor/tensor.h"

namespace quench {

// float8: one f32 encode scale per tensor, row or column.

// Largest magnitude per tensor, row or column, f32 in the shape of the scales; NaN if an element is NaN; 0 if empty.
struct AmaxArgs {
  Tensor x, amax;
  Granularity granularity = Granularity::tensor;
};
extern constinit KernelSlot<AmaxArgs> amax_slot;
[[nodiscard]] Tensor amax(const Tensor& x, Granularity granularity);

// scale = float8_scale(amax) (core/number/float8.h), element by element; any shape.
struct Float8ScaleArgs {
  Tensor amax, scale;
  ElementFormat element = ElementFormat::e4m3;
  bool power_of_two = false;
};
extern constinit KernelSlot<Float8ScaleArgs> float8_scale_slot;
[[nodiscard]] Tensor float8_scale(const Tensor& amax, ElementFormat element, bool power_of_two);

// Which of the two codes next to a scaled value a cast takes: the nearest, ties to the even one, or with a key one at
// random (core/number/stochastic_float8.h). Draws belong to rows and columns of x, batches of matrices being one below
// the other: the codes of x^T are those of x where their scales are the same.
struct Float8Rounding {
  std::optional<RandomKey> key = std::nullopt;
  std::uint64_t first_row = 0;  // of x, in the matrix that it is a piece of
};

// codes = saturating cast of x * scale, with a scale made before (delayed, or reduced over ranks). A matrix product
// needs its contraction axis last: `transposed` has the codes of x^T, made in the same pass over x.
struct Float8CastArgs {
  Tensor x;
  QuantTensor out;         // natural orientation; its scales are read. Undefined: not wanted
  QuantTensor transposed;  // transposed orientation, granularity tensor or column; scales as in `out`, or read here
  Float8Rounding rounding = {};
};
extern constinit KernelSlot<Float8CastArgs> float8_cast_slot;
[[nodiscard]] QuantTensor cast_float8(const Tensor& x, const Tensor& scale, ElementFormat element,
                                      Granularity granularity, Orientation orientation = Orientation::natural,
                                      const Float8Rounding& rounding = {});
// Both orientations under one scale of the tensor, from one read of x.
struct Float8Pair {
  QuantTensor natural, transposed;
};
[[nodiscard]] Float8Pair cast_float8_pair(const Tensor& x, const Tensor& scale, ElementFormat element,
                                          const Float8Rounding& rounding = {});

struct Float8Options {
  ElementFormat element = ElementFormat::e4m3;    // or e5m2
  Granularity granularity = Granularity::tensor;  // tensor, row or column
  bool power_of_two_scale = false;
  Float8Rounding rounding = {};
};
// amax, scale and cast of each row while it is in cache: what quantize_float8 runs for granularity row.
struct Float8RowsArgs {
  Tensor x;
  QuantTensor out;
  bool power_of_two = false;
  // f32 [.., 1, C], or undefined: each element becomes the larger of itself and the largest magnitude of its column,
  // which the cast of the columns needs next. NaN stays NaN.
  Tensor column_amax;
  Float8Rounding rounding = {};
};
extern constinit KernelSlot<Float8RowsArgs> float8_rows_slot;
// amax, scale and cast. A NaN makes every code under its scale NaN; Inf gives scale 0, and code NaN where x is Inf.
[[nodiscard]] QuantTensor quantize_float8(const Tensor& x, const Float8Options& options);
// Granularity row, with the columns' largest magnitudes on the way (see Float8RowsArgs; defined, and 0 or a maximum so
// far).
[[nodiscard]] QuantTensor quantize_float8_rows(const Tensor& x, ElementFormat element, bool power_of_two_scale,
                                               const Tensor& column_amax, const Float8Rounding& rounding = {});

// MX: blocks of 32 with an E8M0 scale (OCP Microscaling Formats 1.0).

inline constexpr int kMxBlockSize = 32;

struct MxOptions {
  ElementFormat element = ElementFormat::e4m3;
  MxScaleMode mode = MxScaleMode::rceil;
  Orientation orientation = Orientation::natural;  // transposed: blocks of 32 rows; the payload is that of x^T
};
struct MxCastArgs {
  Tensor x;
  QuantTensor out;
  MxScaleMode mode = MxScaleMode::rceil;
};
extern constinit KernelSlot<MxCastArgs> mx_cast_slot;
// The axis that blocks run along must be a multiple of 32. A NaN or Inf makes its whole block NaN (scale byte 255,
// codes Element::kNanCode).
[[nodiscard]] QuantTensor quantize_mx(const Tensor& x, const MxOptions& options);

// NVFP4: blocks of 16 e2m1 codes with an e4m3 scale (core/number/nvfp4.h).

// scale = nvfp4_global_scale(amax) (core/number/nvfp4.h), f32 [1], of an amax of one element.
struct Nvfp4GlobalScaleArgs {
  Tensor amax, scale;
};
extern constinit KernelSlot<Nvfp4GlobalScaleArgs> nvfp4_global_scale_slot;
[[nodiscard]] Tensor nvfp4_global_scale(const Tensor& amax);

struct Nvfp4CastArgs {
  Tensor x;
  QuantTensor out;
};  // two levels when out.global_scale() is defined; it is read
extern constinit KernelSlot<Nvfp4CastArgs> nvfp4_cast_slot;
// One level, or two levels with a global scale f32 [1]. The last axis must be a multiple of 16. A NaN makes its block
// NaN; at one level Inf saturates.
[[nodiscard]] QuantTensor quantize_nvfp4(const Tensor& x, const Tensor& global_scale = {});

// Back to f32 or bf16.

// f32 or bf16 of the logical shape. f32 encode scales: code / scale. E8M0: code * 2^(byte - 127). NVFP4:
// code * (global * scale). One rounding to `to` after the f32 arithmetic.
struct DequantizeArgs {
  QuantTensor x;
  Tensor out;
};
extern constinit KernelSlot<DequantizeArgs> dequantize_slot;
[[nodiscard]] Tensor dequantize(const QuantTensor& x, DType to);

}  // namespace quench
