#pragma once
// TorchAO's formulas, bit-identical on finite input: IEEE f32 division on every device, no FMA contraction, independent
// of threads and tiles.
//
// Inputs: contiguous f32/bf16; rank > 2 is a batch of matrices. f32 arithmetic.

#include <optional>

#include "core/device/kernel_slot.h"
#include "core/number/e8m0.h"
#include "core/number/nvfp4.h"
#include "core/number/random.h"
#include "core/tensor/quant_tensor.h"
#include "core/tensor/tensor.h"

namespace quench {

// float8: one f32 encode scale per tensor, row or column. int8 (training, by row or column): f32 decode scales
// amax / 127, rounded to the dtype of x; codes are those of x / max(scale, 1e-12).

// f32, shape of the scales; NaN if an element is; 0 if empty.
struct AmaxArgs {
  Tensor x, amax;
  Granularity granularity = Granularity::tensor;
  bool accumulate = false;  // by tensor: maximum with the amax stored before
};
extern constinit KernelSlot<AmaxArgs> amax_slot;
// Largest magnitudes of x, newly allocated; arguments as AmaxArgs.
[[nodiscard]] Tensor amax(const Tensor& x, Granularity granularity);
// maximum f32 []: becomes the maximum with the amax of x. NaN propagates; an empty x changes nothing.
void raise_amax(const Tensor& x, const Tensor& maximum);

// code_scale() of code_scale.h, elementwise. source: dtype of the values, for int8. power_of_two: float8.
struct Float8ScaleArgs {
  Tensor amax, scale;
  ElementFormat element = ElementFormat::e4m3;
  bool power_of_two = false;
  DType source = DType::bf16;
};
extern constinit KernelSlot<Float8ScaleArgs> float8_scale_slot;
// Scales of given amax values, newly allocated; arguments as Float8ScaleArgs.
[[nodiscard]] Tensor float8_scale(const Tensor& amax, ElementFormat element, bool power_of_two,
                                  DType source = DType::bf16);

// To nearest even, or stochastic with a key (stochastic_float8.h). Draws are indexed by row and column of x, batches
// stacked: x^T gets the values of x under equal scales.
struct Float8Rounding {
  std::optional<RandomKey> key = std::nullopt;
  std::uint64_t first_row = 0;  // global index
};

// Saturating cast of x * encode_factor(scale), scale given (delayed, or reduced over ranks). `transposed`: x^T, for
// GEMMs that reduce over the rows.
struct Float8CastArgs {
  Tensor x;
  QuantTensor out{};       // natural orientation, optional; reads its scales
  QuantTensor transposed;  // tensorwise or columnwise; scales of `out`, or read here
  Float8Rounding rounding = {};
  Tensor amax = {};  // f32 [], optional, in/out: maximum with the amax of x, as raise_amax()
};
extern constinit KernelSlot<Float8CastArgs> float8_cast_slot;
// Codes of x under a given scale, newly allocated. `amax`: as in Float8CastArgs.
[[nodiscard]] QuantTensor cast_float8(const Tensor& x, const Tensor& scale, ElementFormat element,
                                      Granularity granularity, Orientation orientation = Orientation::natural,
                                      const Float8Rounding& rounding = {}, const Tensor& amax = {});
// Codes of one matrix in both orientations.
struct Float8Pair {
  QuantTensor natural, transposed;
};
// Both orientations under one tensorwise scale, in one pass over x. `amax`: as in Float8CastArgs.
[[nodiscard]] Float8Pair cast_float8_pair(const Tensor& x, const Tensor& scale, ElementFormat element,
                                          const Float8Rounding& rounding = {}, const Tensor& amax = {});

// Format and rounding of quantize_float8().
struct Float8Options {
  ElementFormat element = ElementFormat::e4m3;    // is_8_bit
  Granularity granularity = Granularity::tensor;  // not blocks; int8: not tensor
  bool power_of_two_scale = false;
  Float8Rounding rounding = {};
};
// Rowwise amax, scale and cast in one pass.
struct Float8RowsArgs {
  Tensor x;
  QuantTensor out;
  bool power_of_two = false;
  // f32 [.., 1, C], optional, in/out: maximum. NaN propagates.
  Tensor column_amax;
  Float8Rounding rounding = {};
};
extern constinit KernelSlot<Float8RowsArgs> float8_rows_slot;
// A NaN makes values under its scale NaN; Inf gives scale 0, and NaN where x is Inf.
[[nodiscard]] QuantTensor quantize_float8(const Tensor& x, const Float8Options& options);
// Rowwise quantization that also raises column_amax (Float8RowsArgs).
[[nodiscard]] QuantTensor quantize_float8_rows(const Tensor& x, ElementFormat element, bool power_of_two_scale,
                                               const Tensor& column_amax, const Float8Rounding& rounding = {});

// MX: blocks of 32 with an E8M0 scale (OCP Microscaling Formats 1.0).

inline constexpr int kMxBlockSize = 32;

// Format of quantize_mx().
struct MxOptions {
  ElementFormat element = ElementFormat::e4m3;
  MxScaleMode mode = MxScaleMode::rceil;
  Orientation orientation = Orientation::natural;  // transposed: 32 rows, payload of x^T
};
struct MxCastArgs {
  Tensor x;
  QuantTensor out;
  MxScaleMode mode = MxScaleMode::rceil;
};
extern constinit KernelSlot<MxCastArgs> mx_cast_slot;
// The blocked axis is a multiple of 32. NaN/Inf makes its block NaN (scale byte 255, Element::kNanCode).
[[nodiscard]] QuantTensor quantize_mx(const Tensor& x, const MxOptions& options);

// NVFP4: blocks of 16 e2m1 values with an e4m3 scale (nvfp4.h).

// f32 [1]; amax has one element.
struct Nvfp4GlobalScaleArgs {
  Tensor amax, scale;
};
extern constinit KernelSlot<Nvfp4GlobalScaleArgs> nvfp4_global_scale_slot;
// Decode scale f32 [1] of a tensor's amax, newly allocated.
[[nodiscard]] Tensor nvfp4_global_scale(const Tensor& amax);

struct Nvfp4CastArgs {
  Tensor x;
  QuantTensor out;
};  // two levels with out.global_scale()
extern constinit KernelSlot<Nvfp4CastArgs> nvfp4_cast_slot;
// Global scale f32 [1], optional. Last axis: a multiple of 16. A NaN makes its block NaN; Inf saturates with one level.
[[nodiscard]] QuantTensor quantize_nvfp4(const Tensor& x, const Tensor& global_scale = {});

// f32/bf16, logical shape; f32, one rounding. f32 encode scales: code / scale; int8: code * scale. E8M0: code * 2^(byte
// - 127). NVFP4: code
// * (global * scale).
struct DequantizeArgs {
  QuantTensor x;
  Tensor out;
};
extern constinit KernelSlot<DequantizeArgs> dequantize_slot;
// Values in dtype `to`, newly allocated; arithmetic as DequantizeArgs.
[[nodiscard]] Tensor dequantize(const QuantTensor& x, DType to);

}  // namespace quench
