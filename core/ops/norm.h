#pragma once
// RMSNorm (Zhang and Sennrich, 2019, arXiv:1910.07467): y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps).
//
// f32 statistics; the normalized value is rounded to the dtype of x before the weight, as in Hugging Face's Llama, or
// multiplied in f32 with one rounding (f32_weight), as in its Gemma (weight + 1) and OLMo 2.
// Contiguous columns; rows may be strided.

#include "core/device/kernel_slot.h"
#include "core/ops/quantize/quant_outputs.h"
#include "core/tensor/tensor.h"

namespace quench {

// eps, and how the weight applies.
struct RmsNormForm {
  float eps = 1e-5f;
  float weight_offset = 0.0f;
  bool f32_weight = false;
  // Implicit: the plain form.
  constexpr RmsNormForm(float eps_of_mean, float offset = 0.0f, bool f32 = false)
      : eps(eps_of_mean), weight_offset(offset), f32_weight(f32) {}
};

struct RmsNormArgs {
  Tensor x;           // [N,H] or [N,heads,H]; f32/bf16
  Tensor residual{};  // [N,H], optional: normalizes sum = x + residual
  Tensor weight;      // [H], dtype of x
  float eps = 1e-5f;
  float weight_offset = 0.0f;  // added to the weight; needs f32_weight
  bool f32_weight = false;
  Tensor y{};                    // out, like x; undefined: codes in `quant_outputs` alone
  Tensor sum;                    // out, [N,H] contiguous, with residual; may alias x or residual
  Tensor rstd;                   // out, f32 [N] or [N,heads]
  QuantOutputs quant_outputs{};  // y: rank 2, contiguous
};

struct RmsNormBackwardArgs {
  Tensor dy;
  Tensor x;  // normalized input (sum, with a residual)
  Tensor weight;
  Tensor rstd;
  Tensor dsum{};     // optional, contiguous: gradient of sum, added to dx
  Tensor dx;         // out, like x; may alias dy or dsum
  Tensor dweight{};  // [H], f32 or dtype of x; optional
  bool accumulate_dweight = false;
  float weight_offset = 0.0f;
  bool f32_weight = false;
  Tensor y{};                    // out, optional: recomputed forward output
  QuantOutputs quant_outputs{};  // dx: rank 2, contiguous
};

extern constinit KernelSlot<RmsNormArgs> rms_norm_slot;
extern constinit KernelSlot<RmsNormBackwardArgs> rms_norm_backward_slot;

// Forward pass, with residual addition and quantization outputs fused.
void rms_norm(const RmsNormArgs& args);
// dweight is deterministic for a thread count; `deterministic` kernels across thread counts too.
void rms_norm_backward(const RmsNormBackwardArgs& args);

}  // namespace quench
