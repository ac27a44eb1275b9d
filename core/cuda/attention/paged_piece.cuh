#pragma once
// Operands of paged decode attention on tensor cores: keys and values of a warp in registers, in the layout of B
// fragments, query heads and the new token's row in shared memory. The order of dimensions (scores) and of columns
// (output) is free, so that each lane reads 16 bytes of a row.

#include "core/cuda/attention/paged_params.cuh"
#include "core/cuda/common/pack.cuh"

namespace quench::cuda {

inline constexpr int kPagedMmaHeads = 8, kPagedMmaThreads = 256, kPagedMmaWarps = kPagedMmaThreads / 32;
inline constexpr int kPieceKeys = 16;

// Element of the cache, and largest head, a multiple of 64.
template <class CacheElement, int kLargestDim>
struct PagedMmaShape {
  using C = CacheElement;
  using Params = PagedParams<bfloat16, C>;
  static constexpr bool kCoded = kIsCoded<C>;
  static constexpr int kDim = kLargestDim, kBlocks = kDim / 32, kSets = kDim / 64;
  static constexpr int kWords = kCoded ? 2 : 4;  // words of 8 elements in the cache
  static constexpr int kPieces = 1;              // in flight
  // Warps that share keys, each with kWarpSets sets of 64 dimensions of V.
  static constexpr int kValueWarps = kDim <= 64 ? 1 : 2, kWarpSets = kSets / kValueWarps;
  static constexpr int kKeyWarps = kPagedMmaWarps / kValueWarps;
};

// Lane's place in the fragments, groupID and threadID_in_group of the PTX ISA.
template <class Shape>
struct PagedLane {
  int key_warp = static_cast<int>(threadIdx.x) / 32 / Shape::kValueWarps,
      first_set = static_cast<int>(threadIdx.x) / 32 % Shape::kValueWarps * Shape::kWarpSets,
      g = static_cast<int>(threadIdx.x) % 32 / 4, t = static_cast<int>(threadIdx.x) % 4;
  // Offset in a piece of the lane's key i of its four score columns, which are its rows of V.
  [[nodiscard]] __device__ int column(int i) const { return i / 2 * 8 + 2 * t + i % 2; }
};

// Heads and keys of a CTA in a split. Grid: (sequence, block of heads), KV head, first split.
template <class Shape>
struct PagedMmaTile {
  using Params = typename Shape::Params;
  const Params& p;
  int sequence, kv_head, split, first_head;
  std::int64_t position, begin;  // begin: first key of piece 0, a multiple of 16
  int hidden, keys;              // visible keys, from `begin` on: [hidden, keys)

  __device__ PagedMmaTile(const Params& params, int of_split)
      : p(params),
        sequence(static_cast<int>(blockIdx.x) / p.row_blocks),
        kv_head(static_cast<int>(blockIdx.y)),
        split(of_split),
        first_head(static_cast<int>(blockIdx.x) % p.row_blocks * kPagedMmaHeads),
        position(p.positions[sequence]) {
    const std::int64_t first = max(std::int64_t{split} * p.split_keys, first_paged_key(position, p.window, p.chunk));
    begin = first & ~std::int64_t{kPieceKeys - 1};
    hidden = static_cast<int>(first - begin);
    keys = static_cast<int>(max(std::int64_t{0}, min(std::int64_t{split + 1} * p.split_keys, position + 1) - begin));
    if (hidden >= keys) keys = 0;
  }
  // Cache row of a piece's first key.
  [[nodiscard]] __device__ std::int64_t row_of(int key) const {
    const std::int64_t at = begin + key;
    return (std::int64_t{p.pages[sequence * p.pages_row + (at >> p.page_bits)]} << p.page_bits) +
           (at & ((std::int64_t{1} << p.page_bits) - 1));
  }
  // The new token's key; negative if in another split.
  [[nodiscard]] __device__ int new_key() const { return begin + keys == position + 1 ? keys - 1 : -1; }
  // Past the last head: clamped.
  [[nodiscard]] __device__ int head(int r) const { return kv_head * p.group + min(first_head + r, p.group - 1); }
};

// bf16 pairs of 8 elements of the cache, without scale.
template <class Shape>
__device__ __forceinline__ void paged_pairs(const std::uint32_t (&words)[Shape::kWords], std::uint32_t (&pairs)[4]) {
  if constexpr (Shape::kCoded) {
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      std::uint32_t halves[2];
      Shape::C::decode_pairs(words[w], halves);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float2 pair = unpack_pair<float16>(halves[i]);  // exact in both
        pairs[2 * w + i] = pack_pair<bfloat16>(pair.x, pair.y);
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = words[i];
  }
}

template <int N>
__device__ __forceinline__ void load_words(std::uint32_t (&to)[N], const void* from, bool valid) {
  Vector<std::uint32_t, N> words{};
  if (valid) words = *static_cast<const Vector<std::uint32_t, N>*>(from);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = words[i];
}

// The new token's key, with RoPE, and value, as the cache holds them, in shared memory.
template <class Shape>
struct NewPagedRow {
  std::uint32_t key[Shape::kDim / 8][Shape::kWords], value[Shape::kDim / 8][Shape::kWords];
  float key_scale, value_scale;

  // Appends them to the cache, equal values from every CTA of the KV head. Key by warp 0, value by warp 1.
  __device__ __forceinline__ void make(const PagedMmaTile<Shape>& tile) {
    const auto& p = tile.p;
    const auto& token = p.new_token;
    const int warp = static_cast<int>(threadIdx.x) / 32, place = static_cast<int>(threadIdx.x) % 32, d = place * 8;
    if (warp > 1) return;
    const std::int64_t row = tile.row_of(tile.new_key()), from = tile.sequence * p.q_row + tile.kv_head * p.dim;
    Vector<bfloat16> elements{};
    if (d < p.dim)
      elements = warp == 0 ? token.rotated(token.key + from, token.angles(d, p.dim, tile.position), d, p.dim)
                           : *reinterpret_cast<const Vector<bfloat16>*>(token.value + from + d);
    if constexpr (Shape::kCoded)
      if (warp == 0) elements = token.transformed(elements);
    Vector<std::uint32_t, Shape::kWords> words;
    if constexpr (Shape::kCoded) {
      using Element = CodeElement<typename Shape::C>;
      float* const scale = warp == 0 ? p.scales.key(row, tile.kv_head) : p.scales.value(row, tile.kv_head);
      float by = 0;
      if (p.scales.row > 0) {
        Vector<float, 8> values;
#pragma unroll
        for (int j = 0; j < 8; ++j) values[j] = to_float(elements[j]);
        by = dynamic_scale<typename Shape::C>(values);
        if (place == 0 && row < token.capacity) *scale = by;
      } else {
        by = *scale;
      }
      if (place == 0) (warp == 0 ? key_scale : value_scale) = by;
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        words[w] = 0;
#pragma unroll
        for (int j = 0; j < 4; ++j)
          words[w] |= std::uint32_t{cache_code<Element>(to_float(elements[4 * w + j]), by)} << (8 * j);
      }
    } else {
      words = *reinterpret_cast<const Vector<std::uint32_t, 4>*>(&elements);
    }
    if (d >= Shape::kDim) return;
#pragma unroll
    for (int w = 0; w < Shape::kWords; ++w) (warp == 0 ? key : value)[place][w] = words[w];
    if (d >= p.dim || row >= token.capacity) return;
    auto* const to = warp == 0 ? token.keys + row * token.k_row + tile.kv_head * token.k_head
                               : token.values + row * token.v_row + tile.kv_head * token.v_head;
    *reinterpret_cast<Vector<std::uint32_t, Shape::kWords>*>(to + d) = words;
  }
};

// 16 keys and values of a warp. Keys: of B column g of score tile i, dimensions 32 b + 8 t on. Values: of the lane's
// column i, dimensions 64 (first_set + s) + 8 g on.
template <class Shape>
struct PagedPiece {
  static constexpr int kWords = Shape::kWords;
  std::uint32_t keys[2][Shape::kBlocks][kWords], values[4][Shape::kWarpSets][kWords];
  float key_scales[Shape::kCoded ? 4 : 1], value_scales[Shape::kCoded ? 4 : 1];  // scales of its columns

  // Keys from `first` on. Zeros past the last key, of the new token, and past the head.
  __device__ __forceinline__ void load(const PagedMmaTile<Shape>& tile, int first, const PagedLane<Shape>& lane) {
    const auto& p = tile.p;
    const std::int64_t row = first < tile.keys ? tile.row_of(first) : 0;
    const int count = tile.keys - (tile.new_key() >= 0 ? 1 : 0) - first;
    const auto* const k = p.k + tile.kv_head * p.k_head + row * p.k_row;
    const auto* const v = p.v + tile.kv_head * p.v_head + row * p.v_row;
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int b = 0; b < Shape::kBlocks; ++b) {
        const int key = 8 * i + lane.g, d = 32 * b + 8 * lane.t;
        load_words(keys[i][b], k + key * p.k_row + d, key < count && d < p.dim);
      }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = lane.column(i);
#pragma unroll
      for (int s = 0; s < Shape::kWarpSets; ++s) {
        const int d = 64 * (lane.first_set + s) + 8 * lane.g;
        load_words(values[i][s], v + key * p.v_row + d, key < count && d < p.dim);
      }
      if constexpr (Shape::kCoded) {
        key_scales[i] = key < count ? *p.scales.key(row + key, tile.kv_head) : 1.0f;
        value_scales[i] = key < count ? *p.scales.value(row + key, tile.kv_head) : 1.0f;
      }
    }
  }
  // The new token as key `at`.
  __device__ __forceinline__ void take(const NewPagedRow<Shape>& row, int at, const PagedLane<Shape>& lane) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (8 * i + lane.g == at)
#pragma unroll
        for (int b = 0; b < Shape::kBlocks; ++b)
#pragma unroll
          for (int w = 0; w < kWords; ++w) keys[i][b][w] = row.key[4 * b + lane.t][w];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (lane.column(i) != at) continue;
#pragma unroll
      for (int s = 0; s < Shape::kWarpSets; ++s)
#pragma unroll
        for (int w = 0; w < kWords; ++w) values[i][s][w] = row.value[8 * (lane.first_set + s) + lane.g][w];
      if constexpr (Shape::kCoded) {
        key_scales[i] = row.key_scale;
        value_scales[i] = row.value_scale;
      }
    }
  }
};

// Query heads with RoPE, in shared memory, a warp each.
template <class Shape>
struct PagedQueries {
  Vector<bfloat16> rows[kPagedMmaHeads][Shape::kDim / 8];

  __device__ __forceinline__ void make(const PagedMmaTile<Shape>& tile) {
    const auto& p = tile.p;
    const int r = static_cast<int>(threadIdx.x) / 32, place = static_cast<int>(threadIdx.x) % 32, d = place * 8;
    Vector<bfloat16> elements{};
    if (d < p.dim)
      elements = p.new_token.rotated(p.q + tile.sequence * p.q_row + tile.head(r) * p.q_head,
                                     p.new_token.angles(d, p.dim, tile.position), d, p.dim);
    if constexpr (Shape::kCoded) elements = p.new_token.transformed(elements);
    if (d < Shape::kDim) rows[r][place] = elements;
  }
};

// Query head g, dimensions as those of the keys.
template <class Shape>
struct PagedQuery {
  std::uint32_t words[Shape::kBlocks][4];

  __device__ PagedQuery(const PagedQueries<Shape>& queries, const PagedLane<Shape>& lane) {
#pragma unroll
    for (int b = 0; b < Shape::kBlocks; ++b) load_words(words[b], &queries.rows[lane.g][4 * b + lane.t], true);
  }
};

}  // namespace quench::cuda
