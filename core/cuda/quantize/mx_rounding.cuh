#pragma once
// What MX makes of values: e4m3 under a block's scale, and back.

#include <cuda_fp16.h>

#include "core/cuda/quantize/block_scale.cuh"

namespace quench::cuda {

// How a block is rounded.
struct MxRounder {
  BlockScale by;
  float scale;

  // What two elements of the block are worth.
  __device__ float2 operator()(float a, float b) const {
    if (by.is_nan) return make_float2(__uint_as_float(kF32QuietNan), __uint_as_float(kF32QuietNan));
    const auto codes = static_cast<__nv_fp8x2_storage_t>(encode_pair<E4m3>(a * by.multiplier, b * by.multiplier));
    const float2 values = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3)));
    return make_float2(values.x * scale, values.y * scale);
  }
};

// Of a block with the given largest magnitude, the bits of an f32.
__device__ inline MxRounder mx_rounder(std::uint32_t most, const MxScale<E4m3>& rule) {
  const BlockScale by = rule(__uint_as_float(most));
  return {by, decode_e8m0(by.code)};
}

// Eight elements of a block along the columns that four neighbouring lanes share. All lanes of a warp call it.
template <class T>
__device__ Piece round_piece(const PackedPiece<T>& stored, const MxScale<E4m3>& rule) {
  PackedPiece<T> magnitudes = {};
  raise(magnitudes, stored);
  std::uint32_t most = largest(magnitudes);
#pragma unroll
  for (int offset = 1; offset < kMxBlockSize / kPiece; offset *= 2)
    most = max(most, __shfl_xor_sync(0xFFFFFFFFu, most, offset));
  const MxRounder round = mx_rounder(most, rule);
  Piece piece = unpack_piece(stored);
#pragma unroll
  for (int i = 0; i < kPiece; i += 2) {
    const float2 pair = round(piece[i], piece[i + 1]);
    piece[i] = pair.x;
    piece[i + 1] = pair.y;
  }
  return piece;
}

// Blocks of 32 rows of kWidth neighbouring columns, in place.
template <class T, int kWidth>
__device__ void round_rows_of_columns(PackedOf<T, kWidth> (&rows)[kMxBlockSize], const MxScale<E4m3>& rule) {
  std::uint32_t most[kWidth] = {};
#pragma unroll
  for (int i = 0; i < kMxBlockSize; ++i) {
    const Vector<float, kWidth> values = unpack_values<T, kWidth>(rows[i]);
#pragma unroll
    for (int c = 0; c < kWidth; ++c) most[c] = max(most[c], magnitude(values[c]));
  }
  MxRounder round[kWidth];
#pragma unroll
  for (int c = 0; c < kWidth; ++c) round[c] = mx_rounder(most[c], rule);
#pragma unroll
  for (int i = 0; i < kMxBlockSize; i += 2) {
    Vector<float, kWidth> values[2] = {unpack_values<T, kWidth>(rows[i]), unpack_values<T, kWidth>(rows[i + 1])};
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
      const float2 pair = round[c](values[0][c], values[1][c]);
      values[0][c] = pair.x;
      values[1][c] = pair.y;
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) rows[i + k] = pack_values<T, kWidth>(values[k]);
  }
}

}  // namespace quench::cuda
