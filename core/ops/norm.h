#pragma once
// RMSNorm (Zhang and Sennrich, 2019, arXiv:1910.07467): y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps).
//
// Statistics in f32. The normalized value is rounded to the dtype of x before the weight, as in Hugging Face's Llama.
// Contiguous columns; rows may be strided.

#include "core/device/kernel_slot.h"
#include "core/ops/quantize/quant_outputs.h"
#include "core/tensor/tensor.h"

namespace quench {

struct RmsNormArgs {
  Tensor x;         // [N,H] or [N,heads,H]; f32 or bf16
  Tensor residual;  // undefined, or [N,H]: normalizes sum = x + residual
  Tensor weight;    // [H], dtype of x
  float eps = 1e-5f;
  Tensor y;                      // out, shape of x
  Tensor sum;                    // out, [N,H] contiguous; defined with residual. May alias x or residual
  Tensor rstd;                   // out, f32 [N] or [N,heads]
  QuantOutputs quant_outputs{};  // of y; needs x of rank 2, contiguous y
};

struct RmsNormBackwardArgs {
  Tensor dy;       // shape of x
  Tensor x;        // normalized input (sum with a residual)
  Tensor weight;   // [H]
  Tensor rstd;     // f32 from the forward pass
  Tensor dsum;     // undefined, or shape of x, contiguous: gradient of sum, added to dx
  Tensor dx;       // out, shape of x; may alias dy or dsum
  Tensor dweight;  // [H], f32 or dtype of x; may be undefined
  bool accumulate_dweight = false;
  Tensor y;                      // out, shape of x, or undefined: recomputed forward output
  QuantOutputs quant_outputs{};  // of dx; needs x of rank 2, contiguous dx
};

extern constinit KernelSlot<RmsNormArgs> rms_norm_slot;
extern constinit KernelSlot<RmsNormBackwardArgs> rms_norm_backward_slot;

void rms_norm(const RmsNormArgs& args);
// Row sums are deterministic for a thread count; `deterministic` kernels also across thread counts.
void rms_norm_backward(const RmsNormBackwardArgs& args);

}  // namespace quench
