#pragma once
// Weights in NF4 with double quantization: 4 bits an element and 8 a block of 64 (4.13 bits in all). Formulas of the
// scales: TorchAO's NF4Tensor.

#include "core/device/kernel_slot.h"
#include "core/number/nf4.h"
#include "core/tensor/tensor.h"

namespace quench {

// The value of element i is decode(code i) * s, with the scale s = scales[i / 64] / factors[i / 64 / 256] + mean.
struct Nf4Tensor {
  Shape shape;
  Tensor codes;    // u8 [numel / 2], the even element in the high nibble
  Tensor scales;   // i8 [numel / 64]
  Tensor factors;  // f32 [ceil(numel / 64 / 256)]
  Tensor mean;     // f32 [1], of the scales before they were quantized

  [[nodiscard]] std::size_t nbytes() const {
    return codes.nbytes() + scales.nbytes() + factors.nbytes() + mean.nbytes();
  }
};

// Of f32 or bf16 in blocks of 64 along the flattened tensor, in f32: codes are those of x / (largest magnitude of the
// block), scales become integers round((s - mean) * factor), factor = 128 / (largest magnitude of s - mean among 256).
// Runs on the host whatever the device of x; the result is on that. Throws invalid_argument where 64 does not divide
// the number of elements, nonfinite where x holds NaN or infinity.
[[nodiscard]] Nf4Tensor quantize_nf4(const Tensor& x);

struct Nf4DequantizeArgs {
  Nf4Tensor x;
  Tensor out;  // f32 or bf16 of x.shape, contiguous
};
extern constinit KernelSlot<Nf4DequantizeArgs> nf4_dequantize_slot;
void dequantize_nf4(const Nf4DequantizeArgs& args);

}  // namespace quench
