#pragma once
// DoRA (Liu et al., 2024, arXiv:2402.09353): trained magnitudes of weight rows. f32 arithmetic; x, out and bias share a
// dtype, f32/bf16.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

// L2 norms of rows.
struct RowNormsArgs {
  Tensor x;    // [N,K], contiguous
  Tensor out;  // f32 [N]
};

// out = x * f (+ bias), f = magnitude / norms per column, or per row with by_row.
struct ScaleByMagnitudeArgs {
  Tensor x;            // [N,M], contiguous columns
  Tensor magnitude{};  // f32/bf16, [M]; by_row [N]; undefined: f = 1
  Tensor norms;        // f32, like magnitude
  Tensor bias{};       // [M], optional
  Tensor out;          // [N,M], contiguous columns; may alias x
  bool by_row = false;
};

// Deterministic magnitude gradient, norms constant: out[m] = (sum over n of dy[n,m] * x[n,m]) / norms[m].
struct MagnitudeGradientArgs {
  Tensor dy, x;             // [N,M], one dtype, contiguous columns
  Tensor norms;             // f32 [M]
  Tensor out;               // [M], f32 or dtype of x
  bool accumulate = false;  // adds to out
};

extern constinit KernelSlot<RowNormsArgs> row_norms_slot;
extern constinit KernelSlot<ScaleByMagnitudeArgs> scale_by_magnitude_slot;
extern constinit KernelSlot<MagnitudeGradientArgs> magnitude_gradient_slot;

void row_norms(const RowNormsArgs& args);
void scale_by_magnitude(const ScaleByMagnitudeArgs& args);
void magnitude_gradient(const MagnitudeGradientArgs& args);

}  // namespace quench
