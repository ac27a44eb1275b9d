#pragma once
// Weight-decomposed low-rank adaptation (DoRA, Liu et al., 2024, arXiv:2402.09353): the rows of an adapted weight keep
// a direction, and have a trained length. Arithmetic in f32; x, out and bias have one dtype, f32 or bf16.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

// out[n] = the Euclidean norm of row n of x.
struct RowNormsArgs {
  Tensor x;    // [N,K], contiguous
  Tensor out;  // f32 [N]
};

// out = x * f (+ bias), f = magnitude / norms a row or a column of x.
struct ScaleByMagnitudeArgs {
  Tensor x;          // [N,M], rows may be strided
  Tensor magnitude;  // f32 or bf16, [M], with `by_row` [N]; undefined: f is 1
  Tensor norms;      // f32, of the magnitude's shape
  Tensor bias;       // [M] or undefined
  Tensor out;        // [N,M], rows may be strided; may be x
  bool by_row = false;
};

// out[m] = (sum over n of dy[n,m] * x[n,m]) / norms[m]: the gradient of the magnitude, with norms that are constants.
// In a fixed order.
struct MagnitudeGradientArgs {
  Tensor dy, x;             // [N,M], one dtype, rows may be strided
  Tensor norms;             // f32 [M]
  Tensor out;               // [M], f32 or dtype of x
  bool accumulate = false;  // add to out instead of overwriting it
};

extern constinit KernelSlot<RowNormsArgs> row_norms_slot;
extern constinit KernelSlot<ScaleByMagnitudeArgs> scale_by_magnitude_slot;
extern constinit KernelSlot<MagnitudeGradientArgs> magnitude_gradient_slot;

// Throw invalid_argument naming the tensor that does not fit.
void row_norms(const RowNormsArgs& args);
void scale_by_magnitude(const ScaleByMagnitudeArgs& args);
void magnitude_gradient(const MagnitudeGradientArgs& args);

}  // namespace quench
