#pragma once
// Attention of 16 query rows over blocks of 64 keys, in one order of additions whatever the kernel, bf16: blocks begin
// at multiples of 64 keys of the sequence, each has its own maximum and sum, and their results are added in ascending
// order. Training, prefill and decode kernels made of these steps give a row the same bits (ordered_attention.cu).
//
// Products are m16n8k16 MMAs along ascending dimensions (scores) and keys (values). Weights of the softmax are rounded
// to bf16 relative to the maximum of their block. The compiler contracts nothing (--fmad false).

#include <cmath>

#include "core/cuda/common/pack.cuh"
#include "core/cuda/sm80/mma.cuh"

namespace quench::cuda {

inline constexpr int kOrderedKeys = 64;

// kDimension: a multiple of 64, at least D.
template <int kDimension>
struct OrderedShape {
  static constexpr int kDim = kDimension, kUnits = kDim / 8;  // 16-byte units in a row
  static constexpr int kSteps = kDim / 16;
  static constexpr int kBlockBytes = kOrderedKeys * kDim * 2;  // K or V of a block
  // Place in a block, in bytes, of unit `unit` of row `row`: free of bank conflicts for ldmatrix.
  [[nodiscard]] static __device__ __forceinline__ std::uint32_t offset(int row, int unit) {
    return static_cast<std::uint32_t>(row * kUnits + (unit ^ (row & 7))) * 16;
  }
};

__device__ __forceinline__ float ordered_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// A fragments of 16 queries.
template <class Shape>
struct OrderedQueries {
  std::uint32_t words[Shape::kSteps][4];

  // From rows in shared memory, in the layout of a block.
  __device__ __forceinline__ void load(std::uint32_t rows, int first_row) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < Shape::kSteps; ++i)
      ldmatrix_x4(words[i], rows + Shape::offset(first_row + lane % 16, 2 * i + lane / 16));
  }
};

// Scaled scores are in units of log2(e).
struct OrderedScale {
  float scale;  // times log2(e), > 0
  float cap;    // unscaled_cap(); 0: none
};

// Keys [begin, end) of the block that the lane's two rows see, g and g + 8 of the fragment.
struct OrderedVisible {
  int begin[2], end[2];
};

// Result of a block for the lane's two rows: maximum of the scaled scores (minus infinity: no visible key), sum of the
// weights, the weights as A fragments.
struct OrderedWeights {
  float maximum[2], sum[2];
  std::uint32_t words[kOrderedKeys / 16][4];

  // kMasked: not all rows see all keys.
  template <bool kMasked>
  __device__ __forceinline__ void set(float (&scores)[kOrderedKeys / 8][4], const OrderedVisible& visible,
                                      const OrderedScale& by) {
    constexpr int kTiles = kOrderedKeys / 8;
    const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float best = -INFINITY;
#pragma unroll
      for (int j = 0; j < kTiles; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = scores[j][2 * r + e];
          if (by.cap > 0.0f) x = by.cap * tanhf(x / by.cap);
          if constexpr (kMasked) {
            const int key = 8 * j + 2 * t + e;
            if (key < visible.begin[r] || key >= visible.end[r]) x = -INFINITY;
          }
          best = fmaxf(best, x);
        }
#pragma unroll
      for (int offset = 1; offset < 4; offset *= 2) best = fmaxf(best, __shfl_xor_sync(0xFFFFFFFFu, best, offset));
      maximum[r] = best == -INFINITY ? best : best * by.scale;
      const float zero = best == -INFINITY ? 0.0f : maximum[r];
      float total = 0;
#pragma unroll
      for (int j = 0; j < kTiles; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = scores[j][2 * r + e];
          x = ordered_exp2(fmaf(x, by.scale, -zero));
          total += x;
        }
#pragma unroll
      for (int offset = 1; offset < 4; offset *= 2) total += __shfl_xor_sync(0xFFFFFFFFu, total, offset);
      sum[r] = total;
    }
#pragma unroll
    for (int k = 0; k < kOrderedKeys / 16; ++k)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          words[k][2 * h + r] = pack_pair<bfloat16>(scores[2 * k + h][2 * r], scores[2 * k + h][2 * r + 1]);
  }
};

// Weights of a block for kTiles fragments of queries.
template <bool kMasked, int kTiles, class Shape>
__device__ __forceinline__ void ordered_weights(OrderedWeights (&to)[kTiles], const OrderedQueries<Shape> (&q)[kTiles],
                                                std::uint32_t keys, const OrderedVisible (&visible)[kTiles],
                                                const OrderedScale& by) {
  constexpr int kColumns = kOrderedKeys / 8;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float scores[kTiles][kColumns][4] = {};
#pragma unroll
  for (int i = 0; i < Shape::kSteps; ++i)
#pragma unroll
    for (int j = 0; j < kColumns; j += 2) {
      std::uint32_t b[4];
      ldmatrix_x4(b, keys + Shape::offset(8 * (j + lane / 16) + lane % 8, 2 * i + lane / 8 % 2));
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        mma_m16n8k16_bf16(scores[m][j], q[m].words[i], b[0], b[1]);
        mma_m16n8k16_bf16(scores[m][j + 1], q[m].words[i], b[2], b[3]);
      }
    }
#pragma unroll
  for (int m = 0; m < kTiles; ++m) to[m].template set<kMasked>(scores[m], visible[m], by);
}

// Weighted sums of the block's values: columns 16 n to 16 n + 15, in two C fragments.
template <class Shape, int kTiles>
__device__ __forceinline__ void ordered_values(float (&sums)[kTiles][2][4], const OrderedWeights (&weights)[kTiles],
                                               std::uint32_t values, int n) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int m = 0; m < kTiles; ++m)
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[m][0][i] = sums[m][1][i] = 0.0f;
#pragma unroll
  for (int k = 0; k < kOrderedKeys / 16; ++k) {
    std::uint32_t b[4];
    ldmatrix_x4_trans(b, values + Shape::offset(16 * k + lane % 16, 2 * n + lane / 16));
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      mma_m16n8k16_bf16(sums[m][0], weights[m].words[k], b[0], b[1]);
      mma_m16n8k16_bf16(sums[m][1], weights[m].words[k], b[2], b[3]);
    }
  }
}

// Maximum and sum of weights of a row over blocks so far, and factors by which the next block is added to its output.
struct OrderedTotal {
  float maximum = -INFINITY, sum = 0;
  float old_factor = 0, new_factor = 0;

  __device__ __forceinline__ void add(float block_maximum, float block_sum) {
    const float top = fmaxf(maximum, block_maximum), zero = top == -INFINITY ? 0.0f : top;
    old_factor = ordered_exp2(maximum - zero);
    new_factor = ordered_exp2(block_maximum - zero);
    maximum = top;
    sum = merged(sum, block_sum);
  }
  // An element of the output with that of the block.
  [[nodiscard]] __device__ __forceinline__ float merged(float old, float block) const {
    return fmaf(block, new_factor, old * old_factor);
  }
  // Multiplies outputs. No visible key: 0.
  [[nodiscard]] __device__ __forceinline__ float factor() const { return sum == 0.0f ? 0.0f : 1.0f / sum; }
  [[nodiscard]] __device__ __forceinline__ float lse() const {
    return sum == 0.0f ? -INFINITY : (maximum + log2f(sum)) * 0.69314718055994530942f;
  }
};

}  // namespace quench::cuda
