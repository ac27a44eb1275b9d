#pragma once
// NF4 with double quantization: 4.13 bits per element. Scale formulas of TorchAO's NF4Tensor.

#include "core/device/kernel_slot.h"
#include "core/number/nf4.h"
#include "core/tensor/quant_tensor.h"
#include "core/tensor/tensor.h"

namespace quench {

// Element i is decode(code i) * s, s = scales[i / 64] / factors[i / 64 / 256] + mean.
struct Nf4Tensor {
  Shape shape;
  Tensor codes;    // u8 [numel / 2], even element in the high nibble
  Tensor scales;   // i8 [numel / 64]
  Tensor factors;  // f32 [ceil(numel / 64 / 256)]
  Tensor mean;     // f32 [1], of the scales

  [[nodiscard]] std::size_t nbytes() const {
    return codes.nbytes() + scales.nbytes() + factors.nbytes() + mean.nbytes();
  }
};

// x (f32/bf16, flattened, blocks of 64): x / amax in f32; scales round((s - mean) * factor), factor = 128 / (maximum of
// |s - mean| among 256). On x's device but for the scales, which pass through the host. Throws invalid_argument if 64
// does not divide numel, nonfinite on NaN/Inf.
[[nodiscard]] Nf4Tensor quantize_nf4(const Tensor& x);

struct Nf4EncodeArgs {
  Tensor x;      // f32/bf16, contiguous
  Tensor codes;  // u8 [numel / 2]
  Tensor amax;   // f32 [numel / 64]; infinity for a block with NaN/Inf, whose codes are unspecified
};
extern constinit KernelSlot<Nf4EncodeArgs> nf4_encode_slot;

struct Nf4DequantizeArgs {
  Nf4Tensor x;
  Tensor out;  // f32/bf16 of x.shape, contiguous
};
extern constinit KernelSlot<Nf4DequantizeArgs> nf4_dequantize_slot;
void dequantize_nf4(const Nf4DequantizeArgs& args);

// Amax of the f32 values of a matrix x, newly allocated in the shape of the scales, as amax() of them.
[[nodiscard]] Tensor nf4_amax(const Nf4Tensor& x, Granularity granularity);

struct Nf4CastArgs {
  Nf4Tensor x;      // [R,C], 64 divides C
  QuantTensor out;  // e4m3; natural: by tensor or row, transposed: by tensor or column. Reads its scales
};
extern constinit KernelSlot<Nf4CastArgs> nf4_cast_slot;
// e4m3 codes of a matrix x under given encode scales, newly allocated: those of cast_float8() of its f32 values, bit
// for bit, in one pass over the 4-bit codes. Through f32 values if 64 does not divide the columns.
[[nodiscard]] QuantTensor cast_nf4_float8(const Nf4Tensor& x, const Tensor& scale, Granularity granularity,
                                          Orientation orientation = Orientation::natural);

}  // namespace quench
