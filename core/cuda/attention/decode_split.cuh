#pragma once
// Decode kernels of a split KV cache (Flash-Decoding). A CTA has some (query, head) rows of a KV head, which share one
// read of the cache, and a split of the keys, whose scores fit in shared memory: no running maximum. A second kernel
// combines splits in order.

#include <cmath>

#include "core/cuda/attention/decode_params.cuh"
#include "core/cuda/common/pdl.cuh"
#include "core/cuda/common/reduce.cuh"

namespace quench::cuda {

inline constexpr int kCombineThreads = 128;

// Rows and keys of a CTA. Grid: (sequence, row block), KV head, split.
template <int kRowCount>
struct SplitTile : KvRange {
  static constexpr int kRows = kRowCount;
  int split;
  int first_row;  // query * group + head in group
  int sequence_rows;

  template <class Params>
  __device__ SplitTile(const SequenceTiles& tiles, const Params& p)
      : KvRange{tiles.sequences[blockIdx.x / static_cast<unsigned>(p.row_blocks)], static_cast<int>(blockIdx.y)},
        split(static_cast<int>(blockIdx.z)) {
    if (p.last_key != nullptr) s.k_length = max(std::int64_t{0}, min(s.k_length, std::int64_t{*p.last_key} + 1));
    first_row = static_cast<int>(blockIdx.x) % p.row_blocks * kRows;
    sequence_rows = static_cast<int>(s.q_length) * p.group;
    // First key visible to the first row. Causal: the last row sees most keys.
    begin = std::int64_t{split} * p.split_keys + first_visible_key(s, p.window, first_row / p.group);
    const int last_row = min(first_row + kRows, sequence_rows) - 1;
    const std::int64_t end = min(begin + p.split_keys, visible_keys(s, p.causal, last_row / p.group));
    keys = static_cast<int>(max(std::int64_t{0}, end - begin));
  }
  [[nodiscard]] __device__ bool is_empty() const { return first_row >= sequence_rows; }
  // Past the last row: clamped.
  [[nodiscard]] __device__ int row(int r) const { return min(first_row + r, sequence_rows - 1); }
  // query * heads + head.
  template <class Params>
  [[nodiscard]] __device__ std::int64_t out_row(int r, const Params& p) const {
    const int row = first_row + r;
    return (s.q_begin + row / p.group) * p.heads + kv_head * p.group + row % p.group;
  }
  template <class T, class C>
  [[nodiscard]] __device__ const T* query(int r, const DecodeParams<T, C>& p) const {
    const int at = row(r);
    return p.q + (s.q_begin + at / p.group) * p.q_row + (kv_head * p.group + at % p.group) * p.q_head;
  }
  // The keys include the last one, the new token's.
  template <class Params>
  [[nodiscard]] __device__ bool has_last_key(const Params& p) const {
    return s.k_length > begin && s.k_length <= begin + p.split_keys;
  }
  // Visible keys of query `query` are [hidden, visible) of the tile's.
  template <class Params>
  __device__ void visible_range(const Params& p, int query, int& hidden, int& visible) const {
    const std::int64_t most = keys;
    visible = static_cast<int>(max(std::int64_t{0}, min(most, visible_keys(s, p.causal, query) - begin)));
    hidden = static_cast<int>(max(std::int64_t{0}, min(most, first_visible_key(s, p.window, query) - begin)));
  }
  template <class Params>
  [[nodiscard]] __device__ const auto& new_token(const Params& p) const {
    return p.new_token;
  }
};

// K or V tile in registers: keys first + u * kLaneGroups + thread.group.
template <class Shape>
struct KvTile {
  static constexpr bool kCoded = kIsCoded<typename Shape::Cached>;
  CachedLaneRow<Shape> rows[Shape::kUnroll];
  float scales[kCoded ? Shape::kUnroll : 1];

  template <class Rows>
  __device__ __forceinline__ void load(const Rows& from, int first, const DecodeThread<Shape>& thread, int dim) {
#pragma unroll
    for (int u = 0; u < Shape::kUnroll; ++u) {
      if (first + u * Shape::kLaneGroups >= from.count) break;
      load_row(u, from, min(first + u * Shape::kLaneGroups + thread.group, from.count - 1), thread, dim);
    }
  }
  // The last key again, if in the first tile.
  template <class Rows>
  __device__ __forceinline__ void reload_last(const Rows& from, const DecodeThread<Shape>& thread, int dim) {
#pragma unroll
    for (int u = 0; u < Shape::kUnroll; ++u)
      if (u * Shape::kLaneGroups + thread.group >= from.count - 1 && u * Shape::kLaneGroups < from.count)
        load_row(u, from, from.count - 1, thread, dim);
  }
  // x times the scale of key u.
  [[nodiscard]] __device__ __forceinline__ float scaled(int u, float x) const {
    if constexpr (kCoded)
      return x * scales[u];
    else
      return x;
  }

 private:
  template <class Rows>
  __device__ __forceinline__ void load_row(int u, const Rows& from, int key, const DecodeThread<Shape>& thread,
                                           int dim) {
    rows[u].load(from[key], thread, dim);
    if constexpr (kCoded) scales[u] = from.scale(key);
  }
};

// Query rows with RoPE of the new token; its key and value are appended to the cache by the CTAs that have the last
// key, equal values from every CTA of the KV head.
template <class Shape, class Tile>
__device__ __forceinline__ void rotate_queries(float (&q)[Tile::kRows][Shape::kElements], const Tile& tile,
                                               const DecodeThread<Shape>& thread, const typename Shape::Params& p) {
  using T = typename Shape::Element;
  const auto& new_token = tile.new_token(p);
#pragma unroll
  for (int piece = 0; piece < Shape::kPieces; ++piece) {
    const int d = thread.piece_column(piece);
    const auto angles = new_token.angles(d < p.dim ? d : 0, p.dim);
#pragma unroll
    for (int r = 0; r < Tile::kRows; ++r) {
      Vector<T> elements{};
      if (d < p.dim) elements = new_token.rotated(tile.query(r, p), angles, d, p.dim);
      if constexpr (kIsCoded<typename Shape::Cached>) elements = new_token.transformed(elements);
#pragma unroll
      for (int j = 0; j < Shape::kWidth; ++j) q[r][piece * Shape::kWidth + j] = to_float(elements[j]) * p.scale;
    }
  }
}

// Query rows times the scale. `k_tile`: the first tile, with the new token's key on return.
template <class Shape, class Tile>
__device__ __forceinline__ void load_queries(float (&q)[Tile::kRows][Shape::kElements], KvTile<Shape>& k_tile,
                                             const Tile& tile, const DecodeThread<Shape>& thread,
                                             const typename Shape::Params& p) {
  if (p.new_token.key == nullptr) {
#pragma unroll
    for (int r = 0; r < Tile::kRows; ++r) load_query(q[r], tile.query(r, p), thread, p);
    return;
  }
  const bool stores = tile.has_last_key(p);
  if (stores) tile.new_token(p).store(tile.kv_head, p.dim, p.scales);
  rotate_queries(q, tile, thread, p);
  if (stores) {
    __syncthreads();
    k_tile.reload_last(tile.k(p), thread, p.dim);
  }
}

// scores [keys][kRows]. The first tile is loaded already. Uniform trip count over the warp, for the shuffles.
template <class Shape, int kRows, class Rows>
__device__ __forceinline__ void compute_scores(float* scores, KvTile<Shape>& k_tile,
                                               const float (&q)[kRows][Shape::kElements], const Rows& k,
                                               const DecodeThread<Shape>& thread, const typename Shape::Params& p) {
  for (int first = 0; first < k.count; first += Shape::kTileKeys) {
    if (first > 0) k_tile.load(k, first, thread, p.dim);
#pragma unroll
    for (int u = 0; u < Shape::kUnroll; ++u) {
      if (first + u * Shape::kLaneGroups >= k.count) break;
      const int key = first + u * Shape::kLaneGroups + thread.group;
      float elements[Shape::kElements], products[kRows];
      k_tile.rows[u].values(elements);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        products[r] = 0;
#pragma unroll
        for (int e = 0; e < Shape::kElements; ++e) products[r] = fmaf(q[r][e], elements[e], products[r]);
        products[r] = capped_score(k_tile.scaled(u, lane_reduce<Shape::kLanes>(products[r], Sum())), p.cap);
      }
      if (thread.lane == 0 && key < k.count)
#pragma unroll
        for (int r = 0; r < kRows; ++r) scores[key * kRows + r] = products[r];
    }
  }
}

// Maximum and sum of weights per row, in shared memory.
template <int kRows>
struct RowSoftmax {
  float sums[kRows], maxima[kRows];

  // Scores become weights relative to 2^maximum. One warp per row.
  template <class Shape, class Tile>
  __device__ __forceinline__ void apply(float* scores, const Tile& tile, const typename Shape::Params& p) {
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    for (int r = thread / 32; r < kRows; r += Shape::kWarps) {
      int hidden, visible;
      tile.visible_range(p, tile.row(r) / p.group, hidden, visible);
      float best = -INFINITY, sum = 0;
      for (int i = hidden + lane; i < visible; i += 32) best = fmaxf(best, scores[i * kRows + r]);
#pragma unroll
      for (int offset = 16; offset > 0; offset /= 2) best = fmaxf(best, __shfl_xor_sync(0xFFFFFFFFu, best, offset));
      for (int i = lane; i < tile.keys; i += 32) {
        const float weight = i >= hidden && i < visible ? exp2f(scores[i * kRows + r] - best) : 0.0f;
        scores[i * kRows + r] = weight;
        sum += weight;
      }
      sum = warp_reduce(sum, Sum());
      if (lane == 0) {
        maxima[r] = best;
        sums[r] = sum;
      }
    }
  }
};

// Weighted sums of value rows over the lane group's keys. The first tile is loaded already.
template <class Shape, int kRows, class Rows>
__device__ __forceinline__ void weigh_values(float (&sums)[kRows][Shape::kElements], KvTile<Shape>& v_tile,
                                             const float* weights, const Rows& v, const DecodeThread<Shape>& thread,
                                             int dim) {
  for (int first = 0; first < v.count; first += Shape::kTileKeys) {
    if (first > 0) v_tile.load(v, first, thread, dim);
#pragma unroll
    for (int u = 0; u < Shape::kUnroll; ++u) {
      const int key = first + u * Shape::kLaneGroups + thread.group;
      if (key >= v.count) break;
      float elements[Shape::kElements];
      v_tile.rows[u].values(elements);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float weight = v_tile.scaled(u, weights[key * kRows + r]);
#pragma unroll
        for (int e = 0; e < Shape::kElements; ++e) sums[r][e] = fmaf(weight, elements[e], sums[r][e]);
      }
    }
  }
}

// Sums over lane groups to shared memory, [kWarps][kRows][kDim].
template <class Shape, int kRows>
__device__ __forceinline__ void reduce_lane_groups(float* warp_sums, float (&sums)[kRows][Shape::kElements],
                                                   const DecodeThread<Shape>& thread) {
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int e = 0; e < Shape::kElements; ++e) {
#pragma unroll
      for (int offset = 16; offset >= Shape::kLanes; offset /= 2)
        sums[r][e] += __shfl_xor_sync(0xFFFFFFFFu, sums[r][e], offset);
      if (thread.index % 32 < Shape::kLanes)
        warp_sums[(thread.index / 32 * kRows + r) * Shape::kDim + thread.column(e)] = sums[r][e];
    }
}

// Sums over warps: the output, or the split's partial output and softmax.
template <class Shape, int kRows, class Tile>
__device__ __forceinline__ void store_rows(const float* warp_sums, const RowSoftmax<kRows>& softmax, const Tile& tile,
                                           const typename Shape::Params& p) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kRows * Shape::kDim; i += Shape::kThreads) {
    const int r = i / Shape::kDim, d = i % Shape::kDim;
    if (d >= p.dim || tile.first_row + r >= tile.sequence_rows) continue;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < Shape::kWarps; ++w) sum += warp_sums[(w * kRows + r) * Shape::kDim + d];
    const std::int64_t row = tile.out_row(r, p);
    if (p.splits == 1)  // no visible key: 0
      p.out[row * p.dim + d] = from_float<typename Shape::Element>(
          normalized(sum, softmax.maxima[r], softmax.sums[r], p.sinks, row % p.heads));
    else
      p.partial_out[(tile.split * p.rows + row) * p.dim + d] = sum;
  }
  if (p.splits > 1 && thread < kRows && tile.first_row + thread < tile.sequence_rows)
    p.partial_weight[tile.split * p.rows + tile.out_row(thread, p)] =
        make_float2(softmax.maxima[thread], softmax.sums[thread]);
}

// The CTA's rows over its keys: output, or partial output. `shared`: scores [split_keys][kRows], later
// [warps][kRows][kDim].
template <class Shape, class Tile>
__device__ __forceinline__ void decode_tile(float* shared, const Tile& tile, const typename Shape::Params& p) {
  constexpr int kRows = Tile::kRows;
  __shared__ RowSoftmax<kRows> softmax;
  const DecodeThread<Shape> thread;
  KvTile<Shape> kv_tile;
  kv_tile.load(tile.k(p), 0, thread, p.dim);
  float q[kRows][Shape::kElements];
  load_queries(q, kv_tile, tile, thread, p);
  compute_scores(shared, kv_tile, q, tile.k(p), thread, p);
  if (tile.keys > 0) kv_tile.load(tile.v(p), 0, thread, p.dim);  // in flight during the softmax
  __syncthreads();
  softmax.template apply<Shape>(shared, tile, p);
  __syncthreads();

  float sums[kRows][Shape::kElements] = {};
  weigh_values(sums, kv_tile, shared, tile.v(p), thread, p.dim);
  __syncthreads();  // memory reused for partial outputs
  reduce_lane_groups(shared, sums, thread);
  __syncthreads();
  store_rows<Shape>(shared, softmax, tile, p);
}

// Reads 2 * D elements per key, and two scales of codes.
template <class Shape, int kRows>
__global__ __launch_bounds__(Shape::kThreads) void decode_split_kernel(const __grid_constant__ SequenceTiles tiles,
                                                                       const __grid_constant__
                                                                       typename Shape::Params p) {
  extern __shared__ float4 shared[];
  pdl_sync();
  const SplitTile<kRows> tile(tiles, p);
  if (!tile.is_empty()) decode_tile<Shape>(reinterpret_cast<float*>(shared), tile, p);
}

// Output of a row from those of splits [first, last), by the CTA. Reads (4 D + 8) bytes per split, mostly from L2.
// `factors`: shared, a float per split.
template <class T, class C>
__device__ __forceinline__ void combine_row(float* factors, std::int64_t row, int first, int last,
                                            const DecodeParams<T, C>& p) {
  __shared__ float scratch[33];
  const int thread = static_cast<int>(threadIdx.x), splits = last - first;
  const float2* const weights = p.partial_weight + first * p.rows + row;
  const float* const outputs = p.partial_out + (first * p.rows + row) * p.dim;
  float best = -INFINITY, sum = 0;
  for (int i = thread; i < splits; i += kCombineThreads) best = fmaxf(best, weights[i * p.rows].x);
  best = block_reduce<kCombineThreads>(best, -INFINITY, scratch, Max());
  for (int i = thread; i < splits; i += kCombineThreads) {
    // -inf: no visible key, or only NaN, which the sum propagates.
    const float2 weight = weights[i * p.rows];
    factors[i] = weight.x == -INFINITY ? 0.0f : exp2f(weight.x - best);
    sum = fmaf(weight.y, factors[i], sum);
  }
  sum = block_reduce<kCombineThreads>(sum, 0.0f, scratch, Sum());
  for (int d = thread; d < p.dim; d += kCombineThreads) {
    float value = 0;
#pragma unroll 16
    for (int i = 0; i < splits; ++i) value = fmaf(outputs[i * p.rows * p.dim + d], factors[i], value);
    p.out[row * p.dim + d] = from_float<T>(normalized(value, best, sum, p.sinks, row % p.heads));
  }
}

// One CTA per row.
template <class T, class C>
__global__ __launch_bounds__(kCombineThreads) void combine_splits_kernel(const __grid_constant__ SequenceTiles tiles,
                                                                         const __grid_constant__ DecodeParams<T, C> p) {
  extern __shared__ float4 shared[];
  pdl_sync();
  const auto [s, query] = find_tile(tiles, static_cast<int>(blockIdx.x));
  combine_row(reinterpret_cast<float*>(shared), (s.q_begin + query) * p.heads + blockIdx.y, 0, p.splits, p);
}

}  // namespace quench::cuda
