#pragma once
// RMSNorm (Zhang and Sennrich, 2019, arXiv:1910.07467): y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps).
//
// Statistics in f32. As in Hugging Face's Llama, the normalised value is rounded to the activation dtype before it is
// multiplied by the weight. Rows may be strided (a group of heads inside a fused projection), columns are contiguous.

#include "core/device/kernel_slot.h"
#include "core/ops/quantize/quant_outputs.h"
#include "core/tensor/tensor.h"

namespace quench {

struct RmsNormArgs {
  Tensor x;         // [N,H] or [N,heads,H]; f32 or bf16
  Tensor residual;  // undefined, or [N,H] as x: then sum = x + residual is normalised instead of x
  Tensor weight;    // [H], dtype of x
  float eps = 1e-5f;
  Tensor y;                      // out, shape of x
  Tensor sum;                    // out, [N,H] contiguous; defined exactly when residual is. May alias x or residual
  Tensor rstd;                   // out, f32 [N] or [N,heads]
  QuantOutputs quant_outputs{};  // of y; with x of rank 2 and contiguous y
};

struct RmsNormBackwardArgs {
  Tensor dy;       // shape of x
  Tensor x;        // what was normalised (sum where a residual was added)
  Tensor weight;   // [H]
  Tensor rstd;     // f32 from the forward pass
  Tensor dsum;     // undefined, or gradient that reaches x past the norm (shape of x, contiguous): added to dx
  Tensor dx;       // out, shape of x; may alias dy or dsum
  Tensor dweight;  // [H], f32 or dtype of x, or undefined when not wanted
  bool accumulate_dweight = false;  // add to dweight instead of overwriting it
  Tensor y;  // out, shape of x, or undefined: the forward result once more, for a backward pass that did not keep it
  QuantOutputs quant_outputs{};  // of dx; with x of rank 2 and contiguous dx
};

extern constinit KernelSlot<RmsNormArgs> rms_norm_slot;
extern constinit KernelSlot<RmsNormBackwardArgs> rms_norm_backward_slot;

void rms_norm(const RmsNormArgs& args);
// Sums over rows in a fixed order for a given thread count; with `deterministic` kernels the order does not depend on
// it.
void rms_norm_backward(const RmsNormBackwardArgs& args);

}  // namespace quench
