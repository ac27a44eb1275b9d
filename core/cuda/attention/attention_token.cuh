#pragma once
// Decode attention over few keys, one CTA per (query, head). Latency bound: loads are issued upfront, with one CTA
// barrier. Lane groups keep separate online-softmax states, merged at the end.

#include <cmath>

#include "core/cuda/attention/attention_sequences.h"
#include "core/cuda/attention/decode_operands.cuh"
#include "core/cuda/common/pack.cuh"
#include "core/cuda/common/pdl.cuh"
#include "core/cuda/common/reduce.cuh"

namespace quench::cuda {

// Lane's slice of a key or value row.
template <class Shape>
struct PackedLaneRow {
  using T = typename Shape::Element;
  Packed<T> pieces[Shape::kPieces];

  __device__ void load(const T* row, int lane, int dim) {
#pragma unroll
    for (int p = 0; p < Shape::kPieces; ++p) {
      const int d = (p * Shape::kLanes + lane) * Shape::kWidth;
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

// Grid: (sequence, row of a KV head), KV head. Reads 2 * D elements per key.
template <class Shape>
__global__ __launch_bounds__(Shape::kThreads) void token_kernel(const __grid_constant__ SequenceTiles tiles,
                                                                const DecodeOperands<typename Shape::Element> x) {
  using T = typename Shape::Element;
  constexpr int kUnroll = Shape::kUnroll, kTurn = Shape::kGroups * kUnroll;
  __shared__ float warp_sums[Shape::kWarps][Shape::kDim], warp_maxima[Shape::kWarps], warp_weights[Shape::kWarps];

  pdl_launch_dependents();
  SequenceRange s = tiles.sequences[blockIdx.x / static_cast<unsigned>(x.row_blocks)];
  const int row = static_cast<int>(blockIdx.x) % x.row_blocks, kv_head = static_cast<int>(blockIdx.y);
  const int query = row / x.group, head = kv_head * x.group + row % x.group;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % Shape::kLanes, group = thread / Shape::kLanes;
  if (query >= s.q_length) return;
  const auto known_length = [&] {
    return x.last_key == nullptr
               ? s.k_length
               : max(std::int64_t{0},
                     min(s.k_length, std::int64_t{*static_cast<const volatile std::int32_t*>(x.last_key)} + 1));
  };
  // L2 prefetch before pdl_wait(), by a possibly stale last_key (bounded by k_length, read again below). A key not
  // written yet does no harm: L2 is coherent.
  if (lane % (128 / 16) == 0) {
    const auto keys = static_cast<int>(known_length());
    for (int key = group; key < keys; key += Shape::kGroups)
#pragma unroll
      for (int p = 0; p < Shape::kPieces; ++p) {
        const int d = (p * Shape::kLanes + lane) * Shape::kWidth;
        if (d >= x.dim) break;
        prefetch_l2(x.k + (s.k_begin + key) * x.k_row + kv_head * x.k_head + d);
        prefetch_l2(x.v + (s.k_begin + key) * x.v_row + kv_head * x.v_head + d);
      }
  }
  pdl_wait();
  s.k_length = known_length();
  const std::int64_t begin = first_visible_key(s, x.window, query);
  const int keys = static_cast<int>(max(std::int64_t{0}, visible_keys(s, x.causal, query) - begin));
  const T* k = x.k + (s.k_begin + begin) * x.k_row + kv_head * x.k_head;
  const T* v = x.v + (s.k_begin + begin) * x.v_row + kv_head * x.v_head;

  PackedLaneRow<Shape> k_rows[kUnroll], v_rows[kUnroll];
  const auto load = [&](int base) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (base + u * Shape::kGroups >= keys) break;
      const std::int64_t key = min(base + u * Shape::kGroups + group, keys - 1);
      k_rows[u].load(k + key * x.k_row, lane, x.dim);
      v_rows[u].load(v + key * x.v_row, lane, x.dim);
    }
  };
  load(0);

  float q[Shape::kElements];
  PackedLaneRow<Shape> fresh_key, fresh_value;
  const T* source = x.q + (s.q_begin + query) * x.q_row + head * x.q_head;
  if (x.fresh.key == nullptr) {
    LaneRow<Shape> elements;
    if (x.q_is_wide)
      elements.load(source, lane, x.dim);
    else
      elements.load_each(source, lane, x.dim);
#pragma unroll
    for (int e = 0; e < Shape::kElements; ++e) q[e] = elements[e] * x.scale;
  } else {
    fresh_value.load(x.fresh.value + kv_head * x.dim, lane, x.dim);
#pragma unroll
    for (int p = 0; p < Shape::kPieces; ++p) {
      const int d = (p * Shape::kLanes + lane) * Shape::kWidth;
      const auto angles = x.fresh.angles(d < x.dim ? d : 0, x.dim);
      Vector<T> elements{};
      fresh_key.pieces[p] = {};
      if (d < x.dim) {
        elements = x.fresh.rotated(source, angles, d, x.dim);
        const Vector<T> key = x.fresh.rotated(x.fresh.key + kv_head * x.dim, angles, d, x.dim);
        fresh_key.pieces[p] = *reinterpret_cast<const Packed<T>*>(&key);
      }
#pragma unroll
      for (int j = 0; j < Shape::kWidth; ++j) q[p * Shape::kWidth + j] = to_float(elements[j]) * x.scale;
      if (row == 0 && group == 0 && d < x.dim)
        x.fresh.store_piece(kv_head, d, *reinterpret_cast<const Vector<T>*>(&fresh_key.pieces[p]),
                            *reinterpret_cast<const Vector<T>*>(&fresh_value.pieces[p]));
    }
  }

  float sums[Shape::kElements] = {}, maximum = -INFINITY, weight_sum = 0;
  for (int base = 0; base < keys; base += kTurn) {
    if (base > 0) load(base);
    float scores[kUnroll], best = maximum;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int key = base + u * Shape::kGroups + group;
      scores[u] = 0;
      const bool is_fresh = x.fresh.key != nullptr && key == keys - 1;  // not in the cache at load time
      k_rows[u].take_if(is_fresh, fresh_key);
      v_rows[u].take_if(is_fresh, fresh_value);
#pragma unroll
      for (int p = 0; p < Shape::kPieces; ++p) {
        const Vector<float, kVectorWidth<T>> values = k_rows[u].values(p);
#pragma unroll
        for (int j = 0; j < Shape::kWidth; ++j) scores[u] = fmaf(q[p * Shape::kWidth + j], values.values[j], scores[u]);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      scores[u] = capped_score(lane_reduce<Shape::kLanes>(scores[u], Sum()), x.cap);
      if (base + u * Shape::kGroups + group >= keys) scores[u] = -INFINITY;
      best = fmaxf(best, scores[u]);
    }
    // No rescaling before the first key.
    const float factor = maximum == -INFINITY ? 1.0f : exp2f(maximum - best);
    maximum = best;
    weight_sum *= factor;
#pragma unroll
    for (int e = 0; e < Shape::kElements; ++e) sums[e] *= factor;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (base + u * Shape::kGroups + group >= keys) break;
      const float weight = exp2f(scores[u] - best);
      weight_sum += weight;
#pragma unroll
      for (int p = 0; p < Shape::kPieces; ++p) {
        const Vector<float, kVectorWidth<T>> values = v_rows[u].values(p);
#pragma unroll
        for (int j = 0; j < Shape::kWidth; ++j)
          sums[p * Shape::kWidth + j] = fmaf(weight, values.values[j], sums[p * Shape::kWidth + j]);
      }
    }
  }

  // Over lane groups, then warps. Maximum -inf: no visible key, or only NaN.
  const auto share = [](float own, float all) { return own == -INFINITY ? 0.0f : exp2f(own - all); };
  float best = maximum;
#pragma unroll
  for (int offset = 16; offset >= Shape::kLanes; offset /= 2)
    best = fmaxf(best, __shfl_xor_sync(0xFFFFFFFFu, best, offset));
  const float own = share(maximum, best);
  const auto merge = [&](float value) {
    value *= own;
#pragma unroll
    for (int offset = 16; offset >= Shape::kLanes; offset /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, offset);
    return value;
  };
  const int warp = thread / 32;
  weight_sum = merge(weight_sum);
#pragma unroll
  for (int e = 0; e < Shape::kElements; ++e) {
    const float sum = merge(sums[e]);
    const int d = (e / Shape::kWidth * Shape::kLanes + lane) * Shape::kWidth + e % Shape::kWidth;
    if (thread % 32 < Shape::kLanes) warp_sums[warp][d] = sum;
  }
  if (thread % 32 == 0) {
    warp_maxima[warp] = best;
    warp_weights[warp] = weight_sum;
  }
  __syncthreads();
  if (thread >= x.dim) return;
  best = warp_maxima[0];
#pragma unroll
  for (int w = 1; w < Shape::kWarps; ++w) best = fmaxf(best, warp_maxima[w]);
  float sum = 0, weight = 0;
#pragma unroll
  for (int w = 0; w < Shape::kWarps; ++w) {
    const float factor = share(warp_maxima[w], best);
    sum = fmaf(factor, warp_sums[w][thread], sum);
    weight = fmaf(factor, warp_weights[w], weight);
  }
  x.out[((s.q_begin + query) * x.heads + head) * x.dim + thread] =
      from_float<T>(normalized(sum, best, weight, x.sinks, head));
}

}  // namespace quench::cuda
