#pragma once
// DoRA (Liu et al., 2024, arXiv:2402.09353): rows of an adapted weight keep their direction and have a trained
// magnitude. Arithmetic in f32; x, out and bias share one dtype, f32 or bf16.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

// out[n] = L2 norm of row n of x.
struct RowNormsArgs {
  Tensor x;    // [N,K], contiguous
  Tensor out;  // f32 [N]
};

// out = x * f (+ bias), f = magnitude / norms per column of x, or per row with by_row.
struct ScaleByMagnitudeArgs {
  Tensor x;          // [N,M], contiguous columns
  Tensor magnitude;  // f32 or bf16, [M] or, by_row, [N]; undefined: f = 1
  Tensor norms;      // f32, shape of magnitude
  Tensor bias;       // [M] or undefined
  Tensor out;        // [N,M], contiguous columns; may alias x
  bool by_row = false;
};

// out[m] = (sum over n of dy[n,m] * x[n,m]) / norms[m]: magnitude gradient with constant norms. Deterministic.
struct MagnitudeGradientArgs {
  Tensor dy, x;             // [N,M], one dtype, contiguous columns
  Tensor norms;             // f32 [M]
  Tensor out;               // [M], f32 or dtype of x
  bool accumulate = false;  // adds to out
};

extern constinit KernelSlot<RowNormsArgs> row_norms_slot;
extern constinit KernelSlot<ScaleByMagnitudeArgs> scale_by_magnitude_slot;
extern constinit KernelSlot<MagnitudeGradientArgs> magnitude_gradient_slot;

// Throw invalid_argument naming the mismatched tensor.
void row_norms(const RowNormsArgs& args);
void scale_by_magnitude(const ScaleByMagnitudeArgs& args);
void magnitude_gradient(const MagnitudeGradientArgs& args);

}  // namespace quench
