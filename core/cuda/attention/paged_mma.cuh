#pragma once
// Paged decode attention on tensor cores, bf16: up to 8 heads of a KV head are the rows of m16n8k16 MMAs, 16 keys of a
// warp their columns. Weights of the softmax are rounded to bf16 for the product with V, their sum is not. A split's
// order of additions depends on its keys alone.

#include <cmath>

#include "core/cuda/attention/paged_piece.cuh"
#include "core/cuda/common/pdl.cuh"
#include "core/cuda/sm80/mma.cuh"

namespace quench::cuda {

// A warp's state: of head g the sums of column 2 t + e of output tile (s, j), which is dimension 64 s + 8 (2 t + e) +
// j, relative to 2^maximum.
template <class Shape>
struct PagedState {
  float sums[Shape::kWarpSets][8][4] = {}, maximum = -INFINITY, weight = 0;

  // Pieces from `first` on, `stride` keys apart.
  __device__ __forceinline__ void add(const PagedPiece<Shape> (&pieces)[Shape::kPieces], const PagedQuery<Shape>& query,
                                      const PagedMmaTile<Shape>& tile, int first, int stride,
                                      const PagedLane<Shape>& lane) {
    float scores[Shape::kPieces][4], best = maximum;
#pragma unroll
    for (int m = 0; m < Shape::kPieces; ++m) {
      score(scores[m], pieces[m], query, tile, first + m * stride, lane);
#pragma unroll
      for (const float x : scores[m]) best = fmaxf(best, x);
    }
#pragma unroll
    for (int offset = 1; offset < 4; offset *= 2) best = fmaxf(best, __shfl_xor_sync(0xFFFFFFFFu, best, offset));
    // -inf: no visible key, or only NaN, which the weights propagate.
    const float zero = best == -INFINITY ? 0.0f : best, factor = exp2f(maximum - zero);
    maximum = best;
    weight *= factor;
#pragma unroll
    for (int s = 0; s < Shape::kWarpSets; ++s)
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) sums[s][j][e] *= factor;
#pragma unroll
    for (int m = 0; m < Shape::kPieces; ++m) {
      if (first + m * stride >= tile.keys) break;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[m][i] = exp2f(scores[m][i] - zero);
        weight += scores[m][i];
        if constexpr (Shape::kCoded) scores[m][i] *= pieces[m].value_scales[i];
      }
      weigh(pieces[m], scores[m]);
    }
  }

 private:
  // Scores of the lane's columns; -inf for hidden ones.
  static __device__ __forceinline__ void score(float (&scores)[4], const PagedPiece<Shape>& piece,
                                               const PagedQuery<Shape>& query, const PagedMmaTile<Shape>& tile,
                                               int first, const PagedLane<Shape>& lane) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float products[4] = {};
#pragma unroll
      for (int b = 0; b < Shape::kBlocks; ++b) {
        std::uint32_t pairs[4];
        paged_pairs<Shape>(piece.keys[i][b], pairs);
        mma_m16n8k16_bf16(products, {query.words[b][0], 0, query.words[b][1], 0}, pairs[0], pairs[1]);
        mma_m16n8k16_bf16(products, {query.words[b][2], 0, query.words[b][3], 0}, pairs[2], pairs[3]);
      }
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = 2 * i + e, key = first + lane.column(column);
        float x = products[e] * tile.p.scale;
        if constexpr (Shape::kCoded) x *= piece.key_scales[column];
        scores[column] = key >= tile.hidden && key < tile.keys ? capped_score(x, tile.p.cap) : -INFINITY;
      }
    }
  }
  __device__ __forceinline__ void weigh(const PagedPiece<Shape>& piece, const float (&weights)[4]) {
    const std::uint32_t a[4] = {pack_pair<bfloat16>(weights[0], weights[1]), 0,
                                pack_pair<bfloat16>(weights[2], weights[3]), 0};
#pragma unroll
    for (int s = 0; s < Shape::kWarpSets; ++s) {
      std::uint32_t pairs[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) paged_pairs<Shape>(piece.values[i][s], pairs[i]);
#pragma unroll
      for (int j = 0; j < 8; ++j) {  // dimension j of two keys
        const unsigned halves = j % 2 == 0 ? 0x5410 : 0x7632;
        mma_m16n8k16_bf16(sums[s][j], a, __byte_perm(pairs[0][j / 2], pairs[1][j / 2], halves),
                          __byte_perm(pairs[2][j / 2], pairs[3][j / 2], halves));
      }
    }
  }
};

// States of warps, in shared memory.
template <class Shape>
struct PagedMmaReduction {
  static constexpr int kStride = Shape::kDim + 4;
  float sums[Shape::kKeyWarps][kPagedMmaHeads][kStride];
  float maxima[Shape::kKeyWarps][kPagedMmaHeads], weights[Shape::kKeyWarps][kPagedMmaHeads];

  __device__ __forceinline__ void stage(const PagedState<Shape>& state, const PagedLane<Shape>& lane) {
    float weight = state.weight;
#pragma unroll
    for (int offset = 1; offset < 4; offset *= 2) weight += __shfl_xor_sync(0xFFFFFFFFu, weight, offset);
    if (lane.t == 0 && lane.first_set == 0) {
      maxima[lane.key_warp][lane.g] = state.maximum;
      weights[lane.key_warp][lane.g] = weight;
    }
#pragma unroll
    for (int s = 0; s < Shape::kWarpSets; ++s)
#pragma unroll
      for (int e = 0; e < 2; ++e)
#pragma unroll
        for (int j = 0; j < 8; j += 4) {
          const float4 four = make_float4(state.sums[s][j][e], state.sums[s][j + 1][e], state.sums[s][j + 2][e],
                                          state.sums[s][j + 3][e]);
          *reinterpret_cast<float4*>(
              &sums[lane.key_warp][lane.g][64 * (lane.first_set + s) + 16 * lane.t + 8 * e + j]) = four;
        }
  }
  // The output, or that of the split.
  __device__ __forceinline__ void store(const PagedMmaTile<Shape>& tile) const {
    const auto& p = tile.p;
    const int heads = min(kPagedMmaHeads, p.group - tile.first_head);
    for (int i = static_cast<int>(threadIdx.x); i < heads * Shape::kDim; i += kPagedMmaThreads) {
      const int r = i / Shape::kDim, d = i % Shape::kDim;
      if (d >= p.dim) continue;
      float best = maxima[0][r];
#pragma unroll
      for (int w = 1; w < Shape::kKeyWarps; ++w) best = fmaxf(best, maxima[w][r]);
      float sum = 0, weight = 0;
#pragma unroll
      for (int w = 0; w < Shape::kKeyWarps; ++w) {
        const float factor = maxima[w][r] == -INFINITY ? 0.0f : exp2f(maxima[w][r] - best);
        sum = fmaf(factor, sums[w][r][d], sum);
        weight = fmaf(factor, weights[w][r], weight);
      }
      const std::int64_t head = tile.head(r), row = std::int64_t{tile.sequence} * p.heads + head;
      if (p.splits == 1) {  // no key: 0
        p.out[row * p.dim + d] = from_float<bfloat16>(normalized(sum, best, weight, p.sinks, head));
      } else {
        p.partial_out[(tile.split * p.rows + row) * p.dim + d] = sum;
        if (d == 0) p.partial_weight[tile.split * p.rows + row] = make_float2(best, weight);
      }
    }
  }
};

template <class Shape>
__global__ __launch_bounds__(kPagedMmaThreads,
                             Shape::kDim <= 64 ? 2 : 1) void paged_mma_kernel(const __grid_constant__
                                                                              typename Shape::Params p) {
  extern __shared__ float4 shared[];
  __shared__ NewPagedRow<Shape> new_row;
  __shared__ PagedQueries<Shape> queries;
  auto& reduction = *reinterpret_cast<PagedMmaReduction<Shape>*>(shared);
  constexpr int kStride = Shape::kKeyWarps * kPieceKeys, kRound = Shape::kPieces * kStride;
  const PagedLane<Shape> lane;
  pdl_launch_dependents();
  if (!p.constant_cache) pdl_wait();
  bool waits = p.constant_cache;
  for (int split = static_cast<int>(blockIdx.z); split < p.splits; split += static_cast<int>(gridDim.z)) {
    const PagedMmaTile<Shape> tile(p, split);
    // Without splits a sequence without a token has its zeros written.
    if (p.splits > 1 && tile.keys == 0) continue;
    const int begin = lane.key_warp * kPieceKeys;
    PagedPiece<Shape> pieces[Shape::kPieces];
#pragma unroll
    for (int m = 0; m < Shape::kPieces; ++m) pieces[m].load(tile, begin + m * kStride, lane);
    if (waits) pdl_wait();
    waits = false;
    if (split != static_cast<int>(blockIdx.z)) __syncthreads();  // shared memory of the split before
    queries.make(tile);
    if (tile.new_key() >= 0) new_row.make(tile);
    __syncthreads();
    const PagedQuery<Shape> query(queries, lane);
    PagedState<Shape> state;
    for (int first = begin; first < tile.keys; first += kRound) {
#pragma unroll
      for (int m = 0; m < Shape::kPieces; ++m)
        if (const int at = tile.new_key() - (first + m * kStride); at >= 0 && at < kPieceKeys)
          pieces[m].take(new_row, at, lane);
      state.add(pieces, query, tile, first, kStride, lane);
      if (first + kRound < tile.keys)
#pragma unroll
        for (int m = 0; m < Shape::kPieces; ++m) pieces[m].load(tile, first + kRound + m * kStride, lane);
    }
    reduction.stage(state, lane);
    __syncthreads();
    reduction.store(tile);
  }
  if (waits) pdl_wait();
}

}  // namespace quench::cuda
