#pragma once
// Many LoRA adapters in one batch: each row of the input gets the update of an adapter of its own.
//
// Adapters are stacked, those of smaller rank padded with zeros. Sums are f32, in an order that depends on R and K
// alone: a row's bits do not depend on the rows around it. Capturable: the choice is read from device memory.

#include <string>
#include <vector>

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

// Columns of y with adapters of their own, as those of a fused layer.
struct RowAdapterPart {
  Tensor b;                     // [adapters,rank,n], the columns of B with its scale; dtype of x, contiguous
  std::int64_t column = 0;      // first of n in y
  std::int64_t rank_begin = 0;  // first of rank in A
};

inline constexpr std::size_t kMostRowAdapterParts = 8;

// y[m, columns] += B[i] (A[i, ranks] x[m]) with i = rows[m], for each part; rows of -1 are not touched.
struct RowAdaptersArgs {
  Tensor x;                           // [M,K], f32/bf16, contiguous columns
  Tensor a;                           // [adapters,R,K], dtype of x, contiguous
  std::vector<RowAdapterPart> parts;  // columns ascending, disjoint; at most kMostRowAdapterParts
  Tensor rows;                        // i32 [M], -1 to adapters - 1, contiguous; not checked on a GPU
  Tensor y;                           // in and out, [M,N], dtype of x, contiguous columns; rounded once
};

// "row adapters 64x4096x4096+16 of 8 bf16": MxNxK+R.
[[nodiscard]] std::string op_label(const RowAdaptersArgs& args);

extern constinit KernelSlot<RowAdaptersArgs> row_adapters_slot;

// Throws invalid_argument for other shapes, on a CPU also for a row out of range.
void row_adapters(const RowAdaptersArgs& args);

}  // namespace quench
