#pragma once
// Decode: RoPE and Hadamard transform of the new token's q and k fused into the attention kernel; append of k and v to
// the KV cache. Bit-identical to the kernels of RoPE (rotate-half layout) and of core/ops/kv_cache/hadamard.h.

#include "core/cuda/attention/attention_kernels.h"
#include "core/cuda/attention/cached_elements.cuh"
#include "core/cuda/common/vector.cuh"
#include "core/number/hadamard.h"

namespace quench::cuda {

template <class T, class C = T>
struct NewTokenOperands {
  const T* key = nullptr;  // [kv_heads, D]; null: no append
  const T* value = nullptr;
  Stored<C>* keys = nullptr;  // cache
  Stored<C>* values = nullptr;
  std::int64_t capacity = 0, k_row = 0, k_head = 0, v_row = 0, v_head = 0;
  const float* cos = nullptr;  // null: no RoPE
  const float* sin = nullptr;
  std::int64_t table_rows = 0;
  const std::int32_t* position = nullptr;
  std::int64_t page_row = -1;  // paged cache: the token's row; else *position
  int hadamard = 0;            // elements of a block; 0: no transform

  NewTokenOperands() = default;
  NewTokenOperands(const NewToken& token, const AttentionArgs& args)
      : key(token.key.data<T>()),
        value(token.value.data<T>()),
        keys(static_cast<Stored<C>*>(args.k.raw_data())),
        values(static_cast<Stored<C>*>(args.v.raw_data())),
        capacity(args.k.size(0)),
        k_row(args.k.stride(0)),
        k_head(args.k.stride(1)),
        v_row(args.v.stride(0)),
        v_head(args.v.stride(1)),
        cos(token.cos.defined() ? token.cos.data<float>() : nullptr),
        sin(token.sin.defined() ? token.sin.data<float>() : nullptr),
        table_rows(token.cos.defined() ? token.cos.size(0) : 0),
        position(token.position.data<std::int32_t>()),
        hadamard(token.hadamard ? static_cast<int>(hadamard_block(args.k.size(2))) : 0) {}

  // RoPE of elements d to d + kWidth - 1; NaN, without an access, for a position outside the tables.
  struct Angles {
    Vector<float, kVectorWidth<T>> cosine, sine;  // rotate-half sign included
  };
  __device__ Angles angles(int d, int dim) const { return angles(d, dim, cos != nullptr ? *position : 0); }
  __device__ Angles angles(int d, int dim, std::int64_t at) const {
    constexpr int kWidth = kVectorWidth<T>, kLoad = 4;
    Angles result;
    const int half = dim / 2;
    const std::int64_t entry = at * half + (d < half ? d : d - half);
    const bool inside = at >= 0 && at < table_rows;
#pragma unroll
    for (int i = 0; i < kWidth; i += kLoad) {
      Vector<float, kLoad> c, s;
      if (inside) {
        c = *reinterpret_cast<const Vector<float, kLoad>*>(cos + entry + i);
        s = *reinterpret_cast<const Vector<float, kLoad>*>(sin + entry + i);
      }
#pragma unroll
      for (int j = 0; j < kLoad; ++j) {
        result.cosine[i + j] = inside ? c[j] : __int_as_float(0x7FC00000);
        result.sine[i + j] = inside ? (d < half ? -s[j] : s[j]) : __int_as_float(0x7FC00000);
      }
    }
    return result;
  }

  // Rounded to T.
  __device__ Vector<T> rotated(const T* head, const Angles& by, int d, int dim) const {
    Vector<T> own = *reinterpret_cast<const Vector<T>*>(head + d);
    if (cos == nullptr) return own;
    const Vector<T> other = *reinterpret_cast<const Vector<T>*>(head + (d < dim / 2 ? d + dim / 2 : d - dim / 2));
#pragma unroll
    for (int j = 0; j < kVectorWidth<T>; ++j)
      own[j] = from_float<T>(fmaf(to_float(own[j]), by.cosine[j], to_float(other[j]) * by.sine[j]));
    return own;
  }

  // Hadamard transform of a head that neighbouring lanes hold, kVectorWidth<T> elements each, rounded to T. All lanes
  // of the warp take part.
  __device__ Vector<T> transformed(const Vector<T>& piece) const {
    constexpr int kWidth = kVectorWidth<T>;
    if (hadamard == 0) return piece;
    float x[kWidth];
#pragma unroll
    for (int j = 0; j < kWidth; ++j) x[j] = to_float(piece[j]);
#pragma unroll
    for (int h = 1; h < kWidth; h *= 2) {
      if (h >= hadamard) break;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        if ((j & h) != 0) continue;
        const float a = x[j], b = x[j + h];
        x[j] = a + b;
        x[j + h] = a - b;
      }
    }
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int offset = 1; offset * kWidth < hadamard; offset *= 2)
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const float other = __shfl_xor_sync(0xFFFFFFFFu, x[j], offset);
        x[j] = (lane & offset) != 0 ? other - x[j] : x[j] + other;
      }
    const float factor = hadamard_factor(hadamard);
    Vector<T> result;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) result[j] = from_float<T>(x[j] * factor);
    return result;
  }

  [[nodiscard]] __device__ std::int64_t cache_row() const {
    return page_row >= 0 ? page_row : *position;
  }

  // CTA collective. `scales`: read, or written for dynamic ones.
  __device__ void store(int kv_head, int dim, const CacheScales& scales) const {
    constexpr int kWidth = kVectorWidth<T>;
    const std::int64_t row = cache_row();
    if (row < 0 || row >= capacity) return;
    if constexpr (kIsCoded<C>) {
      store_codes(row, kv_head, dim, scales);
    } else {
      for (int d = static_cast<int>(threadIdx.x) * kWidth; d < dim; d += static_cast<int>(blockDim.x) * kWidth) {
        *reinterpret_cast<Vector<T>*>(keys + row * k_row + kv_head * k_head + d) =
            rotated(key + kv_head * dim, angles(d, dim), d, dim);
        *reinterpret_cast<Vector<T>*>(values + row * v_row + kv_head * v_head + d) =
            *reinterpret_cast<const Vector<T>*>(value + kv_head * dim + d);
      }
    }
  }
  // Key by warp 0, value by warp 1.
  __device__ void store_codes(std::int64_t row, int kv_head, int dim, const CacheScales& scales) const {
    constexpr int kWidth = kVectorWidth<T>;
    static_assert(!kIsCoded<C> || kWidth == 8, "32 lanes hold a head of 256");
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32, d = lane * kWidth;
    if (warp > 1) return;
    Vector<T> piece{};
    if (d < dim)
      piece = warp == 0 ? rotated(key + kv_head * dim, angles(d, dim), d, dim)
                        : *reinterpret_cast<const Vector<T>*>(value + kv_head * dim + d);
    if (warp == 0) piece = transformed(piece);
    Vector<float, kWidth> elements;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) elements[j] = to_float(piece[j]);
    float* scale = warp == 0 ? scales.key(row, kv_head) : scales.value(row, kv_head);
    float by = 0;
    if (scales.row > 0) {
      by = dynamic_scale<C>(elements);
      if (lane == 0) *scale = by;
    } else {
      by = *scale;
    }
    if (d < dim)
      store_codes8<C>((warp == 0 ? keys + row * k_row + kv_head * k_head : values + row * v_row + kv_head * v_head) + d,
                      elements, by);
  }
  // Elements d to d + kWidth - 1, by the calling thread.
  __device__ void store_piece(int kv_head, int d, const Vector<T>& key_piece, const Vector<T>& value_piece) const {
    const std::int64_t row = *position;
    if (row < 0 || row >= capacity) return;
    *reinterpret_cast<Vector<T>*>(keys + row * k_row + kv_head * k_head + d) = key_piece;
    *reinterpret_cast<Vector<T>*>(values + row * v_row + kv_head * v_head + d) = value_piece;
  }
};

}  // namespace quench::cuda
