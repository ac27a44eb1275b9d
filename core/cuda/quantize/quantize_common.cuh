#pragma once
// 8-element vectors, hardware float8 conversion, dtype dispatch. Bit-identical to core/number, except that a computed
// NaN is positive.

#include <cuda_fp8.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pack.cuh"
#include "core/number/code_scale.h"
#include "core/ops/quantize/quantize.h"

namespace quench::cuda {

// [.., R, C] as `batch` matrices; a vector: one row.
struct MatrixBatch {
  std::int64_t batch = 1, rows = 1, columns = 1;
  MatrixBatch() = default;
  explicit MatrixBatch(const Shape& shape) {
    for (int i = 0; i + 2 < shape.rank(); ++i) batch *= shape[i];
    if (shape.rank() >= 2) rows = shape[-2];
    if (shape.rank() >= 1) columns = shape[-1];
  }
  [[nodiscard]] std::int64_t numel() const noexcept { return batch * rows * columns; }
};

// Per thread and access.
inline constexpr int kPiece = 8;

[[nodiscard]] inline bool aligned(const void* pointer, std::uintptr_t bytes = 16) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

using Piece = Vector<float, kPiece>;
template <class T>
using PackedPiece = Packed<T, kPiece>;

// Eight elements, or `count` and zeros. `wide`: 16-byte aligned.
template <class T>
__device__ PackedPiece<T> load_packed_piece(const T* from, bool wide, int count = kPiece) {
  PackedPiece<T> stored;
  if (wide && count == kPiece) {
#pragma unroll
    for (int k = 0; k < PackedPiece<T>::kWords / 4; ++k) {
      const Packed<T> part = load_packed(from, k);
#pragma unroll
      for (int i = 0; i < 4; ++i) stored.words[4 * k + i] = part.words[i];
    }
  } else if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < kPiece; ++i) stored.words[i] = i < count ? __float_as_uint(to_float(from[i])) : 0;
  } else {
    const auto bits = [&](int i) { return i < count ? std::uint32_t{from[i].bits} : 0u; };
#pragma unroll
    for (int i = 0; i < kPiece / 2; ++i) stored.words[i] = bits(2 * i) | bits(2 * i + 1) << 16;
  }
  return stored;
}

template <class T>
__device__ Piece load_piece(const T* from, bool wide, int count = kPiece) {
  return unpack(load_packed_piece(from, wide, count));
}

template <class T>
__device__ void store_piece(T* to, const Piece& piece, bool wide, int count = kPiece) {
  if (wide && count == kPiece) {
    constexpr int kParts = kPiece / kVectorWidth<T>;
#pragma unroll
    for (int k = 0; k < kParts; ++k) {
      Vector<T> part;
#pragma unroll
      for (int i = 0; i < kVectorWidth<T>; ++i) part[i] = from_float<T>(piece[k * kVectorWidth<T> + i]);
      reinterpret_cast<Vector<T>*>(to)[k] = part;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPiece; ++i)
      if (i < count) to[i] = from_float<T>(piece[i]);
  }
}

// NaN above infinity.
__device__ inline std::uint32_t magnitude(float x) {
  return __float_as_uint(x) & kF32MagnitudeMask;
}
struct MaxWord {
  __device__ std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return max(a, b); }
};

__device__ inline std::uint32_t max_magnitude(const Piece& piece) {
  std::uint32_t most = 0;
#pragma unroll
  for (int i = 0; i < kPiece; ++i) most = max(most, magnitude(piece[i]));
  return most;
}

// Stored words, and their maximum; per half for 16-bit elements.
template <class T>
__device__ std::uint32_t magnitudes(std::uint32_t word) {
  return word & (sizeof(T) == 4 ? kF32MagnitudeMask : 0x7FFF7FFFu);
}
template <class T>
__device__ std::uint32_t larger(std::uint32_t a, std::uint32_t b) {
  if constexpr (sizeof(T) == 4)
    return max(a, b);
  else
    return __vmaxu2(a, b);
}
// Zero-initialized.
template <class T>
__device__ void raise(PackedPiece<T>& most, const PackedPiece<T>& x) {
#pragma unroll
  for (int i = 0; i < PackedPiece<T>::kWords; ++i) most.words[i] = larger<T>(most.words[i], magnitudes<T>(x.words[i]));
}
template <class T>
__device__ std::uint32_t largest(const PackedPiece<T>& magnitudes) {
  std::uint32_t word = magnitudes.words[0];
#pragma unroll
  for (int i = 1; i < PackedPiece<T>::kWords; ++i) word = larger<T>(word, magnitudes.words[i]);
  return sizeof(T) == 4 ? word : max(word << 16, word & 0xFFFF0000u);
}

// NaN becomes 0.
__device__ inline std::uint8_t saturated_int8(float value) {
  std::int32_t code;
  asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(code) : "f"(value));
  return static_cast<std::uint8_t>(code);
}

template <class Element>
inline constexpr bool kIsFloat8 = std::is_same_v<Element, E4m3> || std::is_same_v<Element, E5m2>;

// First in the low byte. float8, int8: hardware conversion, to nearest even, saturating.
template <class Element>
__device__ std::uint32_t encode_pair(float a, float b) {
  if constexpr (kIsFloat8<Element>)
    return __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE,
                                    std::is_same_v<Element, E4m3> ? __NV_E4M3 : __NV_E5M2);
  else if constexpr (kIsInt8<Element>)
    return std::uint32_t{saturated_int8(a)} | std::uint32_t{saturated_int8(b)} << 8;
  else
    return std::uint32_t{Element::encode(a)} | std::uint32_t{Element::encode(b)} << 8;
}

// x * scale, one per byte; `scale` per element, or one.
template <class Element>
__device__ uint2 encode_piece(const Piece& piece, const Piece& scale) {
  std::uint32_t pairs[kPiece / 2];
#pragma unroll
  for (int i = 0; i < kPiece / 2; ++i)
    pairs[i] = encode_pair<Element>(piece[2 * i] * scale[2 * i], piece[2 * i + 1] * scale[2 * i + 1]);
  return make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
}
__device__ inline Piece repeated(float value) {
  Piece piece;
#pragma unroll
  for (int i = 0; i < kPiece; ++i) piece[i] = value;
  return piece;
}
template <class Element>
__device__ uint2 encode_piece(const Piece& piece, float scale) {
  return encode_piece<Element>(piece, repeated(scale));
}

// Eight 4-bit values: one per byte, or two (even index low).
__device__ inline std::uint32_t pack_nibbles(uint2 codes) {
  const auto half = [](std::uint32_t word) {
    const std::uint32_t pairs = word | word >> 4;  // bytes 0 and 2: two values each
    return (pairs & 0xFFu) | (pairs >> 8 & 0xFF00u);
  };
  return half(codes.x) | half(codes.y) << 16;
}
__device__ inline uint2 unpack_nibbles(std::uint32_t packed) {
  const auto half = [](std::uint32_t two) {
    const std::uint32_t apart = (two & 0xFFu) | (two & 0xFF00u) << 8;
    return (apart | apart << 4) & 0x0F0F0F0Fu;
  };
  return make_uint2(half(packed & 0xFFFFu), half(packed >> 16));
}
__device__ inline std::uint8_t code_at(uint2 codes, int i) {
  return static_cast<std::uint8_t>((i < 4 ? codes.x : codes.y) >> (i % 4 * 8));
}

// Eight bytes, or `count` and zeros. `wide`: 8-byte aligned.
__device__ inline uint2 load_codes(const std::uint8_t* from, bool wide, int count = kPiece) {
  if (wide && count == kPiece) return *reinterpret_cast<const uint2*>(from);
  std::uint32_t words[2] = {};
#pragma unroll
  for (int i = 0; i < kPiece; ++i)
    if (i < count) words[i / 4] |= std::uint32_t{from[i]} << (i % 4 * 8);
  return make_uint2(words[0], words[1]);
}

// `wide`: 8-byte aligned.
__device__ inline void store_codes(std::uint8_t* to, uint2 codes, bool wide, int count = kPiece) {
  if (wide && count == kPiece) {
    *reinterpret_cast<uint2*>(to) = codes;
  } else {
#pragma unroll
    for (int i = 0; i < kPiece; ++i)
      if (i < count) to[i] = code_at(codes, i);
  }
}

template <class... Elements, class Body>
void dispatch_quantize(std::string_view op, DType dtype, ElementFormat element, const Body& body) {
  dispatch<float, bfloat16>(dtype, op, [&]<class T>() {
    dispatch_element<Elements...>(element, op, [&]<class Element>() { body.template operator()<T, Element>(); });
  });
}

[[nodiscard]] inline std::uint8_t* bytes_of(const Tensor& tensor) {
  return static_cast<std::uint8_t*>(tensor.raw_data());
}

// Columnwise scales or transposed output.
void cast_float8_tiles(const Float8CastArgs& args);
// amax (f32 [.., 1, C], non-negative) = max(amax, column amax of x).
void raise_column_amax(const OpLaunch& launch, const Tensor& x, const Tensor& amax);

}  // namespace quench::cuda
