#pragma once
// f32 head tiles in shared memory and their GEMMs.
//
// 16 x 16 threads per kTile x kTile score tile: thread (y, x) holds rows y * R .. y * R + R - 1 and columns x, x + 16,
// ..., R = kTile / 16. A row's 16 threads are half a warp.

#include <cmath>

#include "core/cuda/attention/attention_sequences.h"
#include "core/cuda/common/vector.cuh"

namespace quench::cuda {

inline constexpr int kTileThreads = 256;
inline constexpr float kLog2E = 1.44269504088896340736f, kLn2 = 0.69314718055994530942f;

// Unscaled score capped at +-cap, and the slope there; cap 0: the score itself.
struct CappedScore {
  float score, slope;
};
__device__ inline CappedScore capped(float score, float cap) {
  if (cap == 0.0f) return {score, 1.0f};
  const float bounded = tanhf(score / cap);
  return {cap * bounded, fmaf(-bounded, bounded, 1.0f)};
}

template <class T>
struct Head {
  T* base;
  std::int64_t row_stride;  // elements
  int dim;
  bool wide;  // 16-byte loads
  __device__ T* row(std::int64_t i) const { return base + i * row_stride; }
};

template <class T>
struct Heads {
  T* base;
  std::int64_t row_stride, head_stride;
  int dim;
  bool wide;
  __device__ Head<T> head(std::int64_t i) const { return {base + i * head_stride, row_stride, dim, wide}; }
};

template <class T>
Heads<T> heads_of(const Tensor& t) {
  return {t.data<std::remove_const_t<T>>(), t.stride(0), t.stride(1), static_cast<int>(t.size(2)),
          rows_are_wide<std::remove_const_t<T>>(t.raw_data(), t.stride(0), t.size(2)) &&
              t.stride(1) % kVectorWidth<T> == 0};
}

// kDim: a multiple of 64, at least D; 16 bytes of row padding against bank conflicts.
template <int kTileSize, int kDimension>
struct TileShape {
  static constexpr int kTile = kTileSize, kDim = kDimension, kRow = kDim + 4, kScoreRow = kTile + 4;
  static constexpr int kRows = kTile / 16, kColumns = kDim / 64;  // per thread; columns in vectors of 4
  static constexpr int kTileFloats = kTile * kRow, kScoreFloats = kTile * kScoreRow;
  static_assert(kTile % 16 == 0 && kDim % 64 == 0);
};

template <class Shape, class T>
__device__ void load_tile(float* tile, const Head<const T>& from, std::int64_t first, int count) {
  constexpr int kWidth = kVectorWidth<T>, kPieces = Shape::kDim / kWidth;
  for (int i = static_cast<int>(threadIdx.x); i < Shape::kTile * kPieces; i += kTileThreads) {
    const int row = i / kPieces, d = i % kPieces * kWidth;
    Vector<float, 4> values[kWidth / 4] = {};
    if (row < count) {
      const T* source = from.row(first + row);
      if (from.wide && d + kWidth <= from.dim) {
        const auto piece = *reinterpret_cast<const Vector<T>*>(source + d);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) values[j / 4][j % 4] = to_float(piece[j]);
      } else {
#pragma unroll
        for (int j = 0; j < kWidth; ++j)
          if (d + j < from.dim) values[j / 4][j % 4] = to_float(source[d + j]);
      }
    }
#pragma unroll
    for (int j = 0; j < kWidth / 4; ++j)
      *reinterpret_cast<Vector<float, 4>*>(tile + row * Shape::kRow + d + 4 * j) = values[j];
  }
}

// product[i][j] = a[row i] . b[column j].
template <class Shape>
__device__ void row_products(const float* a, const float* b, float (&product)[Shape::kRows][Shape::kRows]) {
  constexpr int R = Shape::kRows;
  const int x = static_cast<int>(threadIdx.x) % 16, y = static_cast<int>(threadIdx.x) / 16;
#pragma unroll
  for (int i = 0; i < R; ++i)
#pragma unroll
    for (int j = 0; j < R; ++j) product[i][j] = 0;
#pragma unroll 4
  for (int d = 0; d < Shape::kDim; d += 4) {
    Vector<float, 4> left[R], right[R];
#pragma unroll
    for (int i = 0; i < R; ++i) left[i] = *reinterpret_cast<const Vector<float, 4>*>(a + (y * R + i) * Shape::kRow + d);
#pragma unroll
    for (int j = 0; j < R; ++j)
      right[j] = *reinterpret_cast<const Vector<float, 4>*>(b + (x + 16 * j) * Shape::kRow + d);
#pragma unroll
    for (int i = 0; i < R; ++i)
#pragma unroll
      for (int j = 0; j < R; ++j)
#pragma unroll
        for (int c = 0; c < 4; ++c) product[i][j] = fmaf(left[i][c], right[j][c], product[i][j]);
  }
}

template <class Shape>
struct TileSums {  // rows y * R + i, columns 4 * x + 64 * j + c
  float values[Shape::kRows][Shape::kColumns][4] = {};

  // += weights [own kTile rows][kTile] tile; kTransposed: weights [kTile][own kTile rows].
  template <bool kTransposed>
  __device__ void add_product(const float* weights, const float* tile) {
    constexpr int R = Shape::kRows;
    const int x = static_cast<int>(threadIdx.x) % 16, y = static_cast<int>(threadIdx.x) / 16;
#pragma unroll 4
    for (int n = 0; n < Shape::kTile; ++n) {
      float weight[R];
#pragma unroll
      for (int i = 0; i < R; ++i)
        weight[i] =
            kTransposed ? weights[n * Shape::kScoreRow + y * R + i] : weights[(y * R + i) * Shape::kScoreRow + n];
#pragma unroll
      for (int j = 0; j < Shape::kColumns; ++j) {
        const auto piece = *reinterpret_cast<const Vector<float, 4>*>(tile + n * Shape::kRow + 4 * x + 64 * j);
#pragma unroll
        for (int i = 0; i < R; ++i)
#pragma unroll
          for (int c = 0; c < 4; ++c) values[i][j][c] = fmaf(weight[i], piece[c], values[i][j][c]);
      }
    }
  }

  __device__ void scale_row(int i, float factor) {
#pragma unroll
    for (int j = 0; j < Shape::kColumns; ++j)
#pragma unroll
      for (int c = 0; c < 4; ++c) values[i][j][c] *= factor;
  }

  template <class T>
  __device__ void store_row(int i, float factor, T* to, int dim) const {
    const int x = static_cast<int>(threadIdx.x) % 16;
#pragma unroll
    for (int j = 0; j < Shape::kColumns; ++j)
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int d = 4 * x + 64 * j + c;
        if (d < dim) to[d] = from_float<T>(values[i][j][c] * factor);
      }
  }
};

template <class Shape>
__device__ void store_scores(float* scores, const float (&values)[Shape::kRows][Shape::kRows]) {
  const int x = static_cast<int>(threadIdx.x) % 16, y = static_cast<int>(threadIdx.x) / 16;
#pragma unroll
  for (int i = 0; i < Shape::kRows; ++i)
#pragma unroll
    for (int j = 0; j < Shape::kRows; ++j)
      scores[(y * Shape::kRows + i) * Shape::kScoreRow + x + 16 * j] = values[i][j];
}

template <class Body>
void with_tile_shape(std::int64_t dim, const Body& body) {
  QUENCH_CHECK_AS(ErrorCode::unsupported, dim <= 256, "attention on CUDA takes head dimensions up to 256, not {}", dim);
  if (dim <= 64)
    body(TileShape<64, 64>());
  else if (dim <= 128)
    body(TileShape<64, 128>());
  else
    body(TileShape<32, 256>());
}

}  // namespace quench::cuda
