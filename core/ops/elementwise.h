#pragma once
// Unfused elementwise ops: f32 and bf16, arithmetic in f32.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct CastArgs {
  Tensor from, to;
};  // same shape; f32, bf16 or f16; contiguous
struct AddArgs {
  Tensor a, b, out;
};  // out = a + b; one shape and dtype; may alias
struct AccumulateArgs {
  Tensor x, out;
  float scale = 1.0f;
};  // out += scale * x; dtypes may differ (f32, bf16)
struct ScaleArgs {
  Tensor x;
  float factor = 1.0f;
};  // x *= factor
struct ScaleRowsArgs {
  Tensor x;        // [N,W], contiguous
  Tensor factors;  // f32 [N]
};
struct CopyRowsArgs {
  Tensor from, to;  // [N,W], contiguous columns; 8-, 16- or 32-bit dtype
  // i32 [N], optional: row i is copied to row rows[i] of to [M,W], at most once each; out of range: skipped.
  Tensor rows{};
};
struct ColumnSumArgs {
  Tensor x, out;
  bool accumulate = false;
};  // [N,M] -> [M]; out f32 or dtype of x; deterministic

extern constinit KernelSlot<CastArgs> cast_slot;
extern constinit KernelSlot<AddArgs> add_slot;
extern constinit KernelSlot<AccumulateArgs> accumulate_slot;
extern constinit KernelSlot<ScaleArgs> scale_slot;
extern constinit KernelSlot<ScaleRowsArgs> scale_rows_slot;
extern constinit KernelSlot<CopyRowsArgs> copy_rows_slot;
extern constinit KernelSlot<ColumnSumArgs> column_sum_slot;

// Rounded to nearest even.
void cast(const CastArgs& args);
// Sum in f32, one rounding.
void add(const AddArgs& args);
// Sum in f32, one rounding to the dtype of out.
void accumulate(const AccumulateArgs& args);
// Product in f32, one rounding.
void scale(const ScaleArgs& args);
// x[i] *= factors[i]: product in f32, one rounding. A row with factor 0 becomes 0, also where it is not finite.
void scale_rows(const ScaleRowsArgs& args);
// Rows as bytes, without conversion.
void copy_rows(const CopyRowsArgs& args);
// Sums in f32.
void column_sum(const ColumnSumArgs& args);

}  // namespace quench
