#pragma once
// Rows in registers during the reduction for their scale.

#include "core/cuda/quantize/quantize_common.cuh"

namespace quench::cuda {

// For kRowThreads threads per row.
template <int kRowThreads>
inline constexpr int kRowBlock = kRowThreads < 128 ? 128 : kRowThreads;

// At most kKept * kThreads whole vectors: thread t has vectors t, t + kThreads, ..; zero-filled.
template <class T, int kThreads, int kKept>
struct RowPieces {
  PackedPiece<T> pieces[kKept];

  __device__ static int column(int k) {
    const auto thread = static_cast<int>(kRowBlock<kThreads> == kThreads ? threadIdx.x : threadIdx.x % kThreads);
    return (thread + k * kThreads) * kPiece;
  }
  __device__ void load(const T* x, int columns) {
#pragma unroll
    for (int k = 0; k < kKept; ++k)
      pieces[k] = column(k) < columns ? load_packed_piece(x + column(k), true) : PackedPiece<T>{};
  }
};

template <int kRowThreads, int kKeptPieces>
struct RowPlan {
  static constexpr int kThreads = kRowThreads, kKept = kKeptPieces, kColumns = kThreads * kKept * kPiece;
};

// First plan that holds a row; false if none.
template <class... Plans, class Body>
bool with_row_plan(std::int64_t columns, const Body& body) {
  return ((columns <= Plans::kColumns && (body.template operator()<Plans>(), true)) || ...);
}

// Kernels that read and write rows of T: 64 to 128 bytes in flight per thread. Short rows: one warp, no barriers.
template <class T, class Body>
bool with_usual_row_plan(std::int64_t columns, const Body& body) {
  if constexpr (sizeof(T) == 2)
    return with_row_plan<RowPlan<32, 2>, RowPlan<32, 4>, RowPlan<32, 8>, RowPlan<128, 4>, RowPlan<128, 8>,
                         RowPlan<256, 8>, RowPlan<512, 8>>(columns, body);
  else
    return with_row_plan<RowPlan<32, 2>, RowPlan<32, 4>, RowPlan<128, 4>, RowPlan<512, 4>, RowPlan<1024, 4>>(columns,
                                                                                                             body);
}

// 64 registers per thread; CTAs overlap.
template <int kRowThreads>
inline constexpr int kRowBlocks = 1024 / kRowBlock<kRowThreads>;

template <int kRowThreads>
__device__ std::int64_t row_number() {
  constexpr int kRows = kRowBlock<kRowThreads> / kRowThreads;
  return std::int64_t{blockIdx.x} * kRows + (kRows == 1 ? 0 : threadIdx.x / kRowThreads);
}
template <class Plan>
[[nodiscard]] dim3 row_grid(std::int64_t rows) {
  constexpr int kRows = kRowBlock<Plan::kThreads> / Plan::kThreads;
  return dim3(static_cast<unsigned>((rows + kRows - 1) / kRows));
}

}  // namespace quench::cuda
