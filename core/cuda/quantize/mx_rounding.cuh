#pragma once
// MX and NVFP4 emulation.

#include <cuda_fp16.h>

#include "core/cuda/quantize/block_scale.cuh"

namespace quench::cuda {

// Step 0.5 up to 2, 1 up to 4, 2 up to 6; ties to even multiples of the step, whose codes are even.
__device__ inline float through_e2m1(float x) {
  const float size = fminf(fabsf(x), E2m1::kMax);
  const float step = size < 2.0f ? 0.5f : size < 4.0f ? 1.0f : 2.0f;
  const float inverse = size < 2.0f ? 2.0f : size < 4.0f ? 1.0f : 0.5f;
  return copysignf(rintf(size * inverse) * step, x);
}

template <class Element>
struct BlockRounder {
  BlockScale by;
  float factor;

  __device__ float2 operator()(float a, float b) const {
    float2 values;
    if constexpr (std::is_same_v<Element, E4m3>) {
      // NaN blocks have a NaN multiplier.
      const auto codes = static_cast<__nv_fp8x2_storage_t>(encode_pair<E4m3>(a * by.multiplier, b * by.multiplier));
      values = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3)));
    } else {
      static_assert(std::is_same_v<Element, E2m1>);
      if (by.is_nan) return make_float2(__uint_as_float(kF32QuietNan), __uint_as_float(kF32QuietNan));
      values = make_float2(through_e2m1(a * by.multiplier), through_e2m1(b * by.multiplier));
    }
    return make_float2(values.x * factor, values.y * factor);
  }
};

// Rounder from a block's amax (f32 bits); MX or NVFP4 (block_scale.cuh).
template <class Element, class Scale, class Factor>
__device__ BlockRounder<Element> block_rounder(std::uint32_t most, const Scale& scale, const Factor& factor) {
  const BlockScale by = scale(__uint_as_float(most));
  return {by, factor(by.code)};
}

// Warp collective: N elements of a rowwise block of kBlock over adjacent lanes; `most`: own amax, f32 bits.
template <class Element, int kBlock, int N, class Scale, class Factor>
__device__ Vector<float, N> round_among_lanes(Vector<float, N> values, std::uint32_t most, const Scale& scale,
                                              const Factor& factor) {
#pragma unroll
  for (int offset = 1; offset < kBlock / N; offset *= 2) most = max(most, __shfl_xor_sync(0xFFFFFFFFu, most, offset));
  const BlockRounder<Element> round = block_rounder<Element>(most, scale, factor);
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    const float2 pair = round(values[i], values[i + 1]);
    values[i] = pair.x;
    values[i + 1] = pair.y;
  }
  return values;
}
template <class Element, int kBlock, class T, class Scale, class Factor>
__device__ Piece round_piece(const PackedPiece<T>& stored, const Scale& scale, const Factor& factor) {
  PackedPiece<T> magnitudes = {};
  raise(magnitudes, stored);
  return round_among_lanes<Element, kBlock, kPiece>(unpack(stored), largest(magnitudes), scale, factor);
}
template <class T>
__device__ Packed<T> round_packed_to_mx(const Packed<T>& stored, const MxScale<E4m3>& scale) {
  std::uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) word = larger<T>(word, magnitudes<T>(stored.words[i]));
  const std::uint32_t most = sizeof(T) == 4 ? word : max(word << 16, word & 0xFFFF0000u);
  return pack<T>(round_among_lanes<E4m3, kMxBlockSize, kVectorWidth<T>>(unpack(stored), most, scale, MxFactor()));
}

// 32 rows of kWidth adjacent columns, in place.
template <class T, int kWidth, class Element>
__device__ void round_rows_of_columns(Packed<T, kWidth> (&rows)[kMxBlockSize], const MxScale<Element>& scale) {
  std::uint32_t most[kWidth] = {};
#pragma unroll
  for (int i = 0; i < kMxBlockSize; ++i) {
    const Vector<float, kWidth> values = unpack(rows[i]);
#pragma unroll
    for (int c = 0; c < kWidth; ++c) most[c] = max(most[c], magnitude(values[c]));
  }
  BlockRounder<Element> round[kWidth];
#pragma unroll
  for (int c = 0; c < kWidth; ++c) round[c] = block_rounder<Element>(most[c], scale, MxFactor());
#pragma unroll
  for (int i = 0; i < kMxBlockSize; i += 2) {
    Vector<float, kWidth> values[2] = {unpack(rows[i]), unpack(rows[i + 1])};
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
      const float2 pair = round[c](values[0][c], values[1][c]);
      values[0][c] = pair.x;
      values[1][c] = pair.y;
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) rows[i + k] = pack<T>(values[k]);
  }
}

}  // namespace quench::cuda
