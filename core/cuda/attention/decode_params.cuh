#pragma once
// Parameters of the decode kernels, and register layout of K/V rows. C: element of the cache, T or codes (Float8,
// Int8).

#include "core/cuda/attention/attention_sequences.h"
#include "core/cuda/attention/cached_elements.cuh"
#include "core/cuda/attention/new_token.cuh"
#include "core/cuda/common/vector.cuh"

namespace quench::cuda {

inline constexpr int kSplitThreads = 128, kUnsplitThreads = 512;

template <class T, class C = T>
struct DecodeParams {
  const T* q;
  const Stored<C>*k, *v;
  T* out;
  std::int64_t q_row, q_head, k_row, k_head, v_row, v_head;  // in elements
  int heads, group, dim;                                     // group: query heads per KV head
  int row_blocks;                                            // CTAs per KV head
  int splits, split_keys;
  bool causal, q_is_wide;
  std::int64_t window;
  float scale;                   // times log2(e)
  float cap;                     // bound of scores times log2(e); 0: none
  const float* sinks;            // per head, natural; optional
  const std::int32_t* last_key;  // optional
  // Per split and (query, head): unnormalized output, maximum and sum of weights. Null for one split.
  float* partial_out;
  float2* partial_weight;
  std::int64_t rows;  // queries * heads
  NewTokenOperands<T, C> new_token;
  CacheScales scales;  // codes alone
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

// A key row in kLanes threads, kPieces vectors each, of 16 bytes in T.
template <class T, int kLaneCount, int kPieceCount, int kThreadCount = kSplitThreads, class C = T>
struct DecodeShape {
  using Element = T;
  using Cached = C;
  using Params = DecodeParams<T, C>;
  using Unsplit = DecodeShape<T, kLaneCount, kPieceCount, kUnsplitThreads, C>;
  static constexpr int kThreads = kThreadCount, kWarps = kThreads / 32;
  static constexpr int kLanes = kLaneCount, kPieces = kPieceCount, kWidth = kVectorWidth<T>;
  static constexpr int kElements = kPieces * kWidth;  // per thread
  // Keys in flight per lane group; codes have half the bytes.
  static constexpr int kUnroll = (kThreads == kUnsplitThreads && kPieces == 1) || kIsCoded<C> ? 8 : 4;
  static constexpr int kLaneGroups = kThreads / kLanes;
  static constexpr int kTileKeys = kLaneGroups * kUnroll;  // K/V tile of the CTA
  static constexpr int kDim = kLanes * kElements;          // >= D
};

// Thread's place: lane `lane` of a lane group that has a key row.
template <class Shape>
struct DecodeThread {
  int index = static_cast<int>(threadIdx.x), lane = index % Shape::kLanes, group = index / Shape::kLanes;

  // First column of vector p, and column of element e.
  [[nodiscard]] __device__ int piece_column(int p) const { return (p * Shape::kLanes + lane) * Shape::kWidth; }
  [[nodiscard]] __device__ int column(int e) const { return piece_column(e / Shape::kWidth) + e % Shape::kWidth; }
};

// Visible rows of K or V of a KV head.
template <class C>
struct KvRows {
  const Stored<C>* first;
  std::int64_t stride;
  int count;
  const float* scales = nullptr;  // codes alone
  std::int64_t scale_stride = 0;
  [[nodiscard]] __device__ const Stored<C>* operator[](std::int64_t key) const { return first + key * stride; }
  [[nodiscard]] __device__ float scale(std::int64_t key) const { return scales[key * scale_stride]; }
};

// Keys of a KV head that a CTA attends to.
struct KvRange {
  SequenceRange s;
  int kv_head;
  std::int64_t begin = 0;  // in the sequence
  int keys = 0;

  template <class T, class C>
  [[nodiscard]] __device__ KvRows<C> k(const DecodeParams<T, C>& p) const {
    const std::int64_t row = s.k_begin + begin;
    return {p.k + row * p.k_row + kv_head * p.k_head, p.k_row, keys, p.scales.key(row, kv_head), p.scales.row};
  }
  template <class T, class C>
  [[nodiscard]] __device__ KvRows<C> v(const DecodeParams<T, C>& p) const {
    const std::int64_t row = s.k_begin + begin;
    return {p.v + row * p.v_row + kv_head * p.v_head, p.v_row, keys, p.scales.value(row, kv_head), p.scales.row};
  }
};

// Element e of vector p of a lane is column (p * kLanes + lane) * kWidth + e: coalesced.
template <class Shape>
struct LaneRow {
  using T = typename Shape::Element;
  Vector<T> pieces[Shape::kPieces];

  __device__ void load(const T* row, const DecodeThread<Shape>& thread, int dim) {
#pragma unroll
    for (int p = 0; p < Shape::kPieces; ++p) {
      const int d = thread.piece_column(p);
      if (d < dim)
        pieces[p] = *reinterpret_cast<const Vector<T>*>(row + d);
      else
        pieces[p] = {};
    }
  }
  // By elements: any alignment.
  __device__ void load_each(const T* row, const DecodeThread<Shape>& thread, int dim) {
#pragma unroll
    for (int e = 0; e < Shape::kElements; ++e) {
      const int d = thread.column(e);
      pieces[e / Shape::kWidth][e % Shape::kWidth] = d < dim ? row[d] : T{};
    }
  }
  __device__ float operator[](int e) const {
    return to_float(pieces[e / Shape::kWidth][e % Shape::kWidth]);
  }
  __device__ void values(float (&out)[Shape::kElements]) const {
#pragma unroll
    for (int e = 0; e < Shape::kElements; ++e) out[e] = (*this)[e];
  }
};

// The same columns of a row of codes.
template <class Shape>
struct CodedLaneRow {
  using C = typename Shape::Cached;
  static constexpr int kWords = Shape::kWidth / 4;
  Vector<std::uint32_t, kWords> pieces[Shape::kPieces];

  __device__ void load(const std::uint8_t* row, const DecodeThread<Shape>& thread, int dim) {
#pragma unroll
    for (int p = 0; p < Shape::kPieces; ++p) {
      const int d = thread.piece_column(p);
      if (d < dim)
        pieces[p] = *reinterpret_cast<const Vector<std::uint32_t, kWords>*>(row + d);
      else
        pieces[p] = {};
    }
  }
  // Unscaled.
  __device__ void values(float (&out)[Shape::kElements]) const {
#pragma unroll
    for (int p = 0; p < Shape::kPieces; ++p)
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        float word[4];
        C::decode_word(pieces[p][w], word);
#pragma unroll
        for (int j = 0; j < 4; ++j) out[p * Shape::kWidth + 4 * w + j] = word[j];
      }
  }
};
template <class Shape>
using CachedLaneRow = std::conditional_t<kIsCoded<typename Shape::Cached>, CodedLaneRow<Shape>, LaneRow<Shape>>;

// The lane's elements of a query row times the scale.
template <class Shape>
__device__ __forceinline__ void load_query(float (&q)[Shape::kElements], const typename Shape::Element* row,
                                           const DecodeThread<Shape>& thread, const typename Shape::Params& p) {
  LaneRow<Shape> elements;
  if (p.q_is_wide)
    elements.load(row, thread, p.dim);
  else
    elements.load_each(row, thread, p.dim);
#pragma unroll
  for (int e = 0; e < Shape::kElements; ++e) q[e] = elements[e] * p.scale;
}

template <int kLanes, class Op>
__device__ float lane_reduce(float value, Op op) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) value = op(value, __shfl_xor_sync(0xFFFFFFFFu, value, offset));
  return value;
}

}  // namespace quench::cuda
