#pragma once
// Decode kernel of a short KV cache, one CTA per (query, head). Latency bound: loads are issued upfront, with one CTA
// barrier. Lane groups keep separate online-softmax states, merged at the end.

#include <cmath>

#include "core/cuda/attention/decode_params.cuh"
#include "core/cuda/common/pack.cuh"
#include "core/cuda/common/pdl.cuh"
#include "core/cuda/common/reduce.cuh"

namespace quench::cuda {

// Lane's slice of a key or value row.
template <class Shape>
struct PackedLaneRow {
  using T = typename Shape::Element;
  Packed<T> pieces[Shape::kPieces];

  __device__ void load(const T* row, const DecodeThread<Shape>& thread, int dim) {
#pragma unroll
    for (int p = 0; p < Shape::kPieces; ++p) {
      const int d = thread.piece_column(p);
      pieces[p] = d < dim ? *reinterpret_cast<const Packed<T>*>(row + d) : Packed<T>{};
    }
  }
  __device__ void take_if(bool condition, const PackedLaneRow& other) {
#pragma unroll
    for (int p = 0; p < Shape::kPieces; ++p)
#pragma unroll
      for (int w = 0; w < 4; ++w) pieces[p].words[w] = condition ? other.pieces[p].words[w] : pieces[p].words[w];
  }
  [[nodiscard]] __device__ Vector<float, kVectorWidth<T>> values(int piece) const {
    return unpack(pieces[piece]);
  }
};

// Row and keys of a CTA. Grid: (sequence, row of a KV head), KV head.
struct UnsplitTile : KvRange {
  int row, query, head;

  template <class T>
  __device__ UnsplitTile(const SequenceTiles& tiles, const DecodeParams<T>& p)
      : KvRange{tiles.sequences[blockIdx.x / static_cast<unsigned>(p.row_blocks)], static_cast<int>(blockIdx.y)},
        row(static_cast<int>(blockIdx.x) % p.row_blocks),
        query(row / p.group),
        head(kv_head * p.group + row % p.group) {}
  // Keys of the cache, by last_key.
  template <class T>
  [[nodiscard]] __device__ std::int64_t cached_keys(const DecodeParams<T>& p) const {
    if (p.last_key == nullptr) return s.k_length;
    const std::int64_t last = *static_cast<const volatile std::int32_t*>(p.last_key);
    return max(std::int64_t{0}, min(s.k_length, last + 1));
  }
  // After pdl_wait().
  template <class T>
  __device__ __forceinline__ void set_keys(const DecodeParams<T>& p) {
    s.k_length = cached_keys(p);
    begin = first_visible_key(s, p.window, query);
    keys = static_cast<int>(max(std::int64_t{0}, visible_keys(s, p.causal, query) - begin));
  }
  // L2 prefetch before pdl_wait(), by a possibly stale last_key (bounded by k_length, read again in set_keys). A key
  // not written yet does no harm: L2 is coherent.
  template <class Shape>
  __device__ __forceinline__ void prefetch(const DecodeParams<typename Shape::Element>& p,
                                           const DecodeThread<Shape>& thread) const {
    if (thread.lane % (128 / 16) != 0) return;
    const auto count = static_cast<int>(cached_keys(p));
    for (int key = thread.group; key < count; key += Shape::kLaneGroups)
#pragma unroll
      for (int piece = 0; piece < Shape::kPieces; ++piece) {
        const int d = thread.piece_column(piece);
        if (d >= p.dim) break;
        prefetch_l2(p.k + (s.k_begin + key) * p.k_row + kv_head * p.k_head + d);
        prefetch_l2(p.v + (s.k_begin + key) * p.v_row + kv_head * p.v_head + d);
      }
  }
};

// K and V tile in registers: keys first + u * kLaneGroups + thread.group.
template <class Shape>
struct PackedKvTile {
  using T = typename Shape::Element;
  PackedLaneRow<Shape> k[Shape::kUnroll], v[Shape::kUnroll];

  __device__ __forceinline__ void load(const KvRows<T>& k_rows, const KvRows<T>& v_rows, int first,
                                       const DecodeThread<Shape>& thread, int dim) {
#pragma unroll
    for (int u = 0; u < Shape::kUnroll; ++u) {
      if (first + u * Shape::kLaneGroups >= k_rows.count) break;
      const std::int64_t key = min(first + u * Shape::kLaneGroups + thread.group, k_rows.count - 1);
      k[u].load(k_rows[key], thread, dim);
      v[u].load(v_rows[key], thread, dim);
    }
  }
  [[nodiscard]] __device__ __forceinline__ float dot(int u, const float (&q)[Shape::kElements]) const {
    float sum = 0;
#pragma unroll
    for (int p = 0; p < Shape::kPieces; ++p) {
      const Vector<float, kVectorWidth<T>> values = k[u].values(p);
#pragma unroll
      for (int j = 0; j < Shape::kWidth; ++j) sum = fmaf(q[p * Shape::kWidth + j], values.values[j], sum);
    }
    return sum;
  }
};

// Query row times the scale; with a new token, rotated, as its key. The first CTA of a KV head appends key and value to
// the cache.
template <class Shape>
struct QueryAndNewToken {
  using T = typename Shape::Element;
  float q[Shape::kElements];
  PackedLaneRow<Shape> key, value;

  __device__ __forceinline__ void load(const UnsplitTile& tile, const DecodeThread<Shape>& thread,
                                       const DecodeParams<T>& p) {
    const T* query = p.q + (tile.s.q_begin + tile.query) * p.q_row + tile.head * p.q_head;
    if (p.new_token.key == nullptr) return load_query(q, query, thread, p);
    value.load(p.new_token.value + tile.kv_head * p.dim, thread, p.dim);
#pragma unroll
    for (int piece = 0; piece < Shape::kPieces; ++piece) {
      const int d = thread.piece_column(piece);
      const auto angles = p.new_token.angles(d < p.dim ? d : 0, p.dim);
      Vector<T> elements{};
      key.pieces[piece] = {};
      if (d < p.dim) {
        elements = p.new_token.rotated(query, angles, d, p.dim);
        const Vector<T> rotated_key = p.new_token.rotated(p.new_token.key + tile.kv_head * p.dim, angles, d, p.dim);
        key.pieces[piece] = *reinterpret_cast<const Packed<T>*>(&rotated_key);
      }
#pragma unroll
      for (int j = 0; j < Shape::kWidth; ++j) q[piece * Shape::kWidth + j] = to_float(elements[j]) * p.scale;
      if (tile.row == 0 && thread.group == 0 && d < p.dim)
        p.new_token.store_piece(tile.kv_head, d, *reinterpret_cast<const Vector<T>*>(&key.pieces[piece]),
                                *reinterpret_cast<const Vector<T>*>(&value.pieces[piece]));
    }
  }
};

// Factor of a state with maximum `own` in one with maximum `all`. Maximum -inf: no visible key, or only NaN.
__device__ __forceinline__ float softmax_factor(float own, float all) {
  return own == -INFINITY ? 0.0f : exp2f(own - all);
}

// State of a lane group.
template <class Shape>
struct OnlineSoftmax {
  float sums[Shape::kElements] = {}, maximum = -INFINITY, weight_sum = 0;

  // Keys `first` + u * kLaneGroups of `keys`; `scores` before reduction over lanes and soft cap.
  __device__ __forceinline__ void update(float (&scores)[Shape::kUnroll],
                                         const PackedLaneRow<Shape> (&v)[Shape::kUnroll], int first, int keys,
                                         float cap) {
    float best = maximum;
#pragma unroll
    for (int u = 0; u < Shape::kUnroll; ++u) {
      scores[u] = capped_score(lane_reduce<Shape::kLanes>(scores[u], Sum()), cap);
      if (first + u * Shape::kLaneGroups >= keys) scores[u] = -INFINITY;
      best = fmaxf(best, scores[u]);
    }
    // No rescaling before the first key.
    const float factor = maximum == -INFINITY ? 1.0f : exp2f(maximum - best);
    maximum = best;
    weight_sum *= factor;
#pragma unroll
    for (int e = 0; e < Shape::kElements; ++e) sums[e] *= factor;
#pragma unroll
    for (int u = 0; u < Shape::kUnroll; ++u) {
      if (first + u * Shape::kLaneGroups >= keys) break;
      const float weight = exp2f(scores[u] - best);
      weight_sum += weight;
#pragma unroll
      for (int p = 0; p < Shape::kPieces; ++p) {
        const auto values = v[u].values(p);
#pragma unroll
        for (int j = 0; j < Shape::kWidth; ++j)
          sums[p * Shape::kWidth + j] = fmaf(weight, values.values[j], sums[p * Shape::kWidth + j]);
      }
    }
  }
};

// States of warps, in shared memory.
template <class Shape>
struct SoftmaxReduction {
  float sums[Shape::kWarps][Shape::kDim], maxima[Shape::kWarps], weights[Shape::kWarps];

  // Over the warp's lane groups.
  __device__ __forceinline__ void stage(OnlineSoftmax<Shape>& state, const DecodeThread<Shape>& thread) {
    float best = state.maximum;
#pragma unroll
    for (int offset = 16; offset >= Shape::kLanes; offset /= 2)
      best = fmaxf(best, __shfl_xor_sync(0xFFFFFFFFu, best, offset));
    const float factor = softmax_factor(state.maximum, best);
    const int warp = thread.index / 32;
    const float weight = reduce_groups(state.weight_sum * factor);
#pragma unroll
    for (int e = 0; e < Shape::kElements; ++e) {
      const float sum = reduce_groups(state.sums[e] * factor);
      if (thread.index % 32 < Shape::kLanes) sums[warp][thread.column(e)] = sum;
    }
    if (thread.index % 32 == 0) {
      maxima[warp] = best;
      weights[warp] = weight;
    }
  }
  // Over warps: the output.
  __device__ __forceinline__ void store(const UnsplitTile& tile, int d,
                                        const DecodeParams<typename Shape::Element>& p) const {
    float best = maxima[0];
#pragma unroll
    for (int w = 1; w < Shape::kWarps; ++w) best = fmaxf(best, maxima[w]);
    float sum = 0, weight = 0;
#pragma unroll
    for (int w = 0; w < Shape::kWarps; ++w) {
      const float factor = softmax_factor(maxima[w], best);
      sum = fmaf(factor, sums[w][d], sum);
      weight = fmaf(factor, weights[w], weight);
    }
    p.out[((tile.s.q_begin + tile.query) * p.heads + tile.head) * p.dim + d] =
        from_float<typename Shape::Element>(normalized(sum, best, weight, p.sinks, tile.head));
  }

 private:
  static __device__ __forceinline__ float reduce_groups(float value) {
#pragma unroll
    for (int offset = 16; offset >= Shape::kLanes; offset /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, offset);
    return value;
  }
};

// Reads 2 * D elements per key.
template <class Shape>
__global__ __launch_bounds__(Shape::kThreads) void decode_unsplit_kernel(
    const __grid_constant__ SequenceTiles tiles, const __grid_constant__ DecodeParams<typename Shape::Element> p) {
  __shared__ SoftmaxReduction<Shape> reduction;
  pdl_launch_dependents();
  UnsplitTile tile(tiles, p);
  const DecodeThread<Shape> thread;
  if (tile.query >= tile.s.q_length) return;
  tile.prefetch(p, thread);
  pdl_wait();
  tile.set_keys(p);

  const auto k = tile.k(p), v = tile.v(p);
  PackedKvTile<Shape> kv;
  kv.load(k, v, 0, thread, p.dim);
  QueryAndNewToken<Shape> query;
  query.load(tile, thread, p);
  OnlineSoftmax<Shape> softmax;
  for (int first = 0; first < tile.keys; first += Shape::kTileKeys) {
    if (first > 0) kv.load(k, v, first, thread, p.dim);
    float scores[Shape::kUnroll];
#pragma unroll
    for (int u = 0; u < Shape::kUnroll; ++u) {
      const int key = first + u * Shape::kLaneGroups + thread.group;
      const bool is_new = p.new_token.key != nullptr && key == tile.keys - 1;  // not in the cache at load time
      kv.k[u].take_if(is_new, query.key);
      kv.v[u].take_if(is_new, query.value);
      scores[u] = kv.dot(u, query.q);
    }
    softmax.update(scores, kv.v, first + thread.group, tile.keys, p.cap);
  }
  reduction.stage(softmax, thread);
  __syncthreads();
  if (thread.index < p.dim) reduction.store(tile, thread.index, p);
}

}  // namespace quench::cuda
