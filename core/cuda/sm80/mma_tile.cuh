#pragma once
// One 128x128 GEMM tile with f32 accumulators, by mma.sync (SM80 and later); bf16 operands, or float8 pairs
// (core/cuda/sm80/float8_mma.cuh).
//
// 256 threads: 2x4 warps of 64x32. K steps of 64, loaded by cp.async kStages - 1 steps ahead. Shared-memory operands
// are K-major ("k inner": rows of 128 bytes) or MN-major ("k outer": 64 rows of 256 bytes); 16-byte chunks are
// XOR-swizzled with the low three bits of the row, so ldmatrix has no bank conflicts.

#include "core/cuda/common/vector.cuh"
#include "core/cuda/sm80/mma.cuh"

namespace quench::cuda {

// Three stages: 96 KiB, within the 99 KiB of SM86, SM89 and SM120.
inline constexpr int kMmaTile = 128, kMmaDepth = 64, kMmaThreads = 256, kMmaStages = 3;
inline constexpr int kMmaOperandBytes = kMmaTile * kMmaDepth * 2;
inline constexpr int kMmaSharedBytes = kMmaStages * 2 * kMmaOperandBytes;

// GEMM operand of 16-bit elements in global memory.
struct MmaOperand {
  const bfloat16* base;  // tile's first row (K-major) or column (MN-major), at k = 0
  std::int64_t stride;   // row stride in elements
  std::int64_t extent;   // valid rows or columns from `base`
  std::int64_t depth;    // K
};

// cp.async of K step `step`.
template <bool kInner>
__device__ inline void load_operand(std::uint32_t shared, const MmaOperand& operand, std::int64_t step) {
  constexpr int kPieces = kInner ? kMmaDepth / 8 : kMmaTile / 8, kRows = kInner ? kMmaTile : kMmaDepth;
#pragma unroll
  for (int i = 0; i < kRows * kPieces / kMmaThreads; ++i) {
    const int index = i * kMmaThreads + static_cast<int>(threadIdx.x), row = index / kPieces, piece = index % kPieces;
    const std::int64_t k = step * kMmaDepth + (kInner ? piece * 8 : row), at = kInner ? row : piece * 8;
    const bool valid = k < operand.depth && at < operand.extent;
    const bfloat16* from = operand.base + (kInner ? at * operand.stride + k : k * operand.stride + at);
    cp_async_16(shared + static_cast<std::uint32_t>(row * kPieces * 16 + (piece ^ (row & 7)) * 16),
                valid ? from : operand.base, valid);
  }
}

// ldmatrix of the 16x16 block at (row, k) as an A fragment of mma.m16n8k16; `kLeft` false: as two B fragments of 8
// columns.
template <bool kInner, bool kLeft>
__device__ inline void load_fragment(std::uint32_t (&words)[4], std::uint32_t shared, int row, int k) {
  const int lane = static_cast<int>(threadIdx.x) % 32, matrix = lane / 8, line = lane % 8;
  // A: matrices 0..3 at (row, k), (row + 8, k), (row, k + 8), (row + 8, k + 8); B: rows and k swapped.
  const int row_half = kLeft ? matrix & 1 : matrix >> 1, k_half = kLeft ? matrix >> 1 : matrix & 1;
  if constexpr (kInner) {
    const int r = row + row_half * 8 + line, piece = k / 8 + k_half;
    ldmatrix_x4(words, shared + static_cast<std::uint32_t>(r * kMmaDepth * 2 + (piece ^ (r & 7)) * 16));
  } else {
    const int r = k + k_half * 8 + line, piece = row / 8 + row_half;
    ldmatrix_x4_trans(words, shared + static_cast<std::uint32_t>(r * kMmaTile * 2 + (piece ^ (r & 7)) * 16));
  }
}

// Accumulators of a warp: rows 16 i + lane / 4 (+ 8), columns 8 j + 2 (lane % 4) (+ 1) of its 64x32 tile.
struct MmaSums {
  float values[4][4][4] = {};
};

// 16 MMAs of a warp over 16 of K, bf16.
struct Bf16Mma {
  static __device__ void multiply(MmaSums& sums, const std::uint32_t (&left)[4][4],
                                  const std::uint32_t (&right)[2][4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        mma_m16n8k16_bf16(sums.values[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
  }
};

// sums += left * right over K. Calls after_step(step) after each kMmaDepth of K. Collective over the CTA; `shared`:
// kMmaSharedBytes of shared memory, aligned to 128.
template <bool kLeftInner, bool kRightInner, class Mma = Bf16Mma, class AfterStep>
__device__ inline void multiply_tile(MmaSums& sums, std::uint32_t shared, const MmaOperand& left,
                                     const MmaOperand& right, const AfterStep& after_step) {
  const int warp = static_cast<int>(threadIdx.x) / 32, row = warp / 4 * 64, column = warp % 4 * 32;
  const std::int64_t steps = (left.depth + kMmaDepth - 1) / kMmaDepth;
  const auto left_at = [&](std::int64_t step) {
    return shared + static_cast<std::uint32_t>(step % kMmaStages) * 2 * kMmaOperandBytes;
  };
  const auto queue = [&](std::int64_t step) {
    if (step < steps) {
      load_operand<kLeftInner>(left_at(step), left, step);
      load_operand<kRightInner>(left_at(step) + kMmaOperandBytes, right, step);
    }
    cp_async_commit();
  };
#pragma unroll
  for (int step = 0; step < kMmaStages - 1; ++step) queue(step);
  for (std::int64_t step = 0; step < steps; ++step) {
    cp_async_wait<kMmaStages - 2>();
    __syncthreads();  // step loaded; previous step consumed
    queue(step + kMmaStages - 1);
    const std::uint32_t a = left_at(step), b = a + kMmaOperandBytes;
#pragma unroll
    for (int k = 0; k < kMmaDepth; k += 16) {
      std::uint32_t left_words[4][4], right_words[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) load_fragment<kLeftInner, true>(left_words[i], a, row + 16 * i, k);
#pragma unroll
      for (int j = 0; j < 2; ++j) load_fragment<kRightInner, false>(right_words[j], b, column + 16 * j, k);
      Mma::multiply(sums, left_words, right_words);
    }
    after_step(step);
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
}
template <bool kLeftInner, bool kRightInner>
__device__ inline void multiply_tile(MmaSums& sums, std::uint32_t shared, const MmaOperand& left,
                                     const MmaOperand& right) {
  multiply_tile<kLeftInner, kRightInner>(sums, shared, left, right, [](std::int64_t) {});
}

template <class Store>
__device__ inline void for_sums(const MmaSums& sums, const Store& store) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = warp / 4 * 64 + lane / 4, column = warp % 4 * 32 + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        store(row + 16 * i + 8 * half, column + 8 * j, sums.values[i][j][2 * half], sums.values[i][j][2 * half + 1]);
}

}  // namespace quench::cuda
