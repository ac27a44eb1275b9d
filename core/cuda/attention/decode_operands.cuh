#pragma once
// Operands of the decode kernels, and register layout of K/V rows.

#include "core/cuda/attention/new_token.cuh"
#include "core/cuda/common/vector.cuh"

namespace quench::cuda {

inline constexpr int kPartThreads = 128, kWholeThreads = 512;

template <class T>
struct DecodeOperands {
  const T *q, *k, *v;
  T* out;
  std::int64_t q_row, q_head, k_row, k_head, v_row, v_head;  // in elements
  int heads, group, dim;
  int row_blocks;  // CTAs per KV head
  int parts, part_size;
  bool causal, q_is_wide;
  std::int64_t window;
  float scale;                   // times log2(e)
  float cap;                     // bound of scores times log2(e); 0: none
  const float* sinks;            // per head, natural; optional
  const std::int32_t* last_key;  // optional
  // Per part and (query, head): unnormalized output, maximum and sum of weights. Null for one part.
  float* partial_out;
  float2* partial_weight;
  std::int64_t rows;  // queries * heads
  NewTokenOperands<T> fresh;
};

// Unnormalized `sum` of a head's row over its weights, whose sum is relative to 2^maximum, and its sink; no visible
// key: 0.
__device__ inline float normalized(float sum, float maximum, float weight, const float* sinks, std::int64_t head) {
  if (weight == 0.0f) return 0.0f;
  if (sinks == nullptr) return sum / weight;
  const float sink = sinks[head] * 1.44269504088896340736f, top = fmaxf(maximum, sink);
  const float factor = exp2f(maximum - top);
  return sum * factor / fmaf(weight, factor, exp2f(sink - top));
}

// A scaled score under the soft cap.
__device__ inline float capped_score(float score, float cap) {
  return cap == 0.0f ? score : cap * tanhf(score / cap);
}

// A key row in kLanes threads, kPieces 16-byte vectors each.
template <class T, int kLaneCount, int kPieceCount, int kThreadCount = kPartThreads>
struct DecodeShape {
  using Element = T;
  using Whole = DecodeShape<T, kLaneCount, kPieceCount, kWholeThreads>;
  static constexpr int kThreads = kThreadCount, kWarps = kThreads / 32;
  static constexpr int kLanes = kLaneCount, kPieces = kPieceCount, kWidth = kVectorWidth<T>;
  static constexpr int kElements = kPieces * kWidth;                                 // per thread
  static constexpr int kUnroll = kThreads == kWholeThreads && kPieces == 1 ? 8 : 4;  // keys in flight
  static constexpr int kGroups = kThreads / kLanes;                                  // keys per CTA iteration
  static constexpr int kDim = kLanes * kElements;                                    // >= D
};

// Element e of vector p of a lane is column (p * kLanes + lane) * kWidth + e: coalesced.
template <class Shape>
struct LaneRow {
  Vector<typename Shape::Element> pieces[Shape::kPieces];

  __device__ void load(const typename Shape::Element* row, int lane, int dim) {
#pragma unroll
    for (int p = 0; p < Shape::kPieces; ++p) {
      const int d = (p * Shape::kLanes + lane) * Shape::kWidth;
      if (d < dim)
        pieces[p] = *reinterpret_cast<const Vector<typename Shape::Element>*>(row + d);
      else
        pieces[p] = {};
    }
  }
  __device__ void load_each(const typename Shape::Element* row, int lane, int dim) {
#pragma unroll
    for (int e = 0; e < Shape::kElements; ++e) {
      const int d = (e / Shape::kWidth * Shape::kLanes + lane) * Shape::kWidth + e % Shape::kWidth;
      pieces[e / Shape::kWidth][e % Shape::kWidth] = d < dim ? row[d] : typename Shape::Element{};
    }
  }
  __device__ float operator[](int e) const {
    return to_float(pieces[e / Shape::kWidth][e % Shape::kWidth]);
  }
};

template <int kLanes, class Op>
__device__ float lane_reduce(float value, Op op) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) value = op(value, __shfl_xor_sync(0xFFFFFFFFu, value, offset));
  return value;
}

}  // namespace quench::cuda
