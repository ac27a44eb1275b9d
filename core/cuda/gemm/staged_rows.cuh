#pragma once
// Rows of x in shared memory, optionally RMS-normalized.

#include "core/cuda/common/pack.cuh"
#include "core/cuda/common/vector.cuh"
#include "core/cuda/sm80/mma.cuh"
#include "core/ops/packed_linear.h"

namespace quench::cuda {

// With `gain`: one row, RMSNorm of x + residual.
struct TileInput {
  const bfloat16* x;
  int rows;
  const bfloat16* residual = nullptr;
  const bfloat16* gain = nullptr;
  bfloat16* sum = nullptr;  // x + residual, by the first CTA
  float eps = 0;
};

inline constexpr std::int64_t kStagedPad = 4;  // in 16 bytes, against bank conflicts
inline constexpr int kMostNormedUnits = 1024;  // 16-byte units of a row
inline constexpr int kNormedParts = 4;         // units per thread of the RMSNorm kernel

// 8 bf16 values in Codes::Pair, in decode_pairs() order; vectors read together by a row's four lanes are contiguous.
// kUnits: per lane and chunk.
template <class Codes, int kUnits>
__device__ inline void stage_unit(uint4* staged, int unit, uint4 v) {
  if constexpr (Codes::kBits == 4)
    v = make_uint4(__byte_perm(v.x, v.z, 0x5410), __byte_perm(v.x, v.z, 0x7632), __byte_perm(v.y, v.w, 0x5410),
                   __byte_perm(v.y, v.w, 0x7632));
  constexpr int kSpan = 4 * kUnits;
  const int within = unit % kSpan;
  staged[unit - within + within % kUnits * 4 + within / kUnits] = v;
}

__device__ inline std::uint32_t largest_magnitude(const Packed<bfloat16>& values, std::uint32_t largest) {
#pragma unroll
  for (const std::uint32_t word : values.words) largest = max(largest, max(word & 0x7FFFu, word >> 16 & 0x7FFFu));
  return largest;
}
// CTA maximum, in every thread. `parts` may be reused after the next barrier.
template <int kThreads>
__device__ inline std::uint32_t largest_of_block(std::uint32_t largest, std::uint32_t (&parts)[kThreads / 32]) {
  largest = __reduce_max_sync(0xFFFFFFFFu, largest);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = largest;
  __syncthreads();
#pragma unroll
  for (const std::uint32_t part : parts) largest = max(largest, part);
  return largest;
}

// Power-of-two scale of a bf16 row's amax to [2^14, 2^15), or near. Exact in f16 down to 2^-31 of the amax; smaller
// values err by at most 2^-39 of it. Infinity and NaN propagate.
__device__ inline float scale_for_f16(std::uint32_t largest) {
  constexpr std::uint32_t kLargestExponent = 253, kTarget = 2 * 127 + 14;
  return __uint_as_float(min(kTarget - (largest >> 7), kLargestExponent) << 23);
}
// Inverse of a power of two in [2^-126, 2^126].
__device__ inline float inverse_of(float power) {
  return __uint_as_float((254u << 23) - __float_as_uint(power));
}
__device__ inline uint4 scaled_to_f16(const Packed<bfloat16>& values, float scale) {
  std::uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = unpack_pair<bfloat16>(values.words[i]);
    words[i] = pack_pair<float16>(pair.x * scale, pair.y * scale);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// Inverses; unused for bf16 pairs.
using RowScales = float[kPackedRows];

template <class Codes, int kUnits, int kThreads>
__device__ inline void stage_rows(const TileInput& in, int units, uint4* staged, RowScales& row_scales) {
  constexpr bool kScales = std::is_same_v<typename Codes::Pair, float16>;
  __shared__ std::uint32_t largest_parts[kPackedRows][kThreads / 32];
  for (int row = 0; row < in.rows; ++row) {
    const bfloat16* x = in.x + std::int64_t{row} * units * 8;
    float scale = 1;
    if constexpr (kScales) {
      std::uint32_t largest = 0;
      for (int u = static_cast<int>(threadIdx.x); u < units; u += kThreads)
        largest = largest_magnitude(load_packed(x, u), largest);
      scale = scale_for_f16(largest_of_block<kThreads>(largest, largest_parts[row]));
      if (threadIdx.x == 0) row_scales[row] = inverse_of(scale);
    }
    for (int u = static_cast<int>(threadIdx.x); u < units; u += kThreads) {
      const Packed<bfloat16> values = load_packed(x, u);
      stage_unit<Codes, kUnits>(staged + row * (units + kStagedPad), u,
                                kScales
                                    ? scaled_to_f16(values, scale)
                                    : make_uint4(values.words[0], values.words[1], values.words[2], values.words[3]));
    }
  }
}

// Shared memory of stage_rows(), or of stage_normed_row(): its values and gains too, each thread's own, which
// leaves the registers to the weights.
__host__ __device__ constexpr std::int64_t staged_bytes(std::int64_t rows, std::int64_t units, bool normed) {
  return (rows * (units + kStagedPad) + (normed ? 2 * units : 0)) * 16;
}

// Bit-identical to norm.cu by its summation order: `lanes` threads with a unit in each of kNormedParts iterations, a
// tree over each warp, then over warps.
template <class Codes, int kUnits, int kThreads>
__device__ inline void stage_normed_row(const TileInput& in, int units, uint4* staged, RowScales& row_scales) {
  constexpr bool kScales = std::is_same_v<typename Codes::Pair, float16>;
  __shared__ float squares[kMostNormedUnits];
  auto* const values = reinterpret_cast<Packed<bfloat16>*>(staged + units + kStagedPad);
  const Packed<bfloat16>* const gains = values + units;
  int lanes = 32;
  while (lanes * kNormedParts < units) lanes *= 2;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int u = static_cast<int>(threadIdx.x); u < lanes * kNormedParts; u += kThreads) {
    float part[2] = {};
    if (u < units) {
      cp_async_16(static_cast<std::uint32_t>(__cvta_generic_to_shared(gains + u)), in.gain + u * 8, true);
      Vector<float, 8> total = unpack<bfloat16>(load_packed(in.x, u));
      const Vector<float, 8> addend = unpack<bfloat16>(load_packed(in.residual, u));
#pragma unroll
      for (int j = 0; j < 8; ++j) total[j] += addend[j];
      values[u] = pack<bfloat16>(total);
      if (blockIdx.x == 0) store_packed(in.sum, u, values[u]);
      total = unpack<bfloat16>(values[u]);
#pragma unroll
      for (int j = 0; j < 8; ++j) part[j % 2] = fmaf(total[j], total[j], part[j % 2]);
    }
    squares[u] = part[0] + part[1];
  }
  cp_async_commit();
  __syncthreads();
  float sum = 0;  // lane w: of warp w
  for (int w = 0; w * 32 < lanes; ++w) {
    float of_warp = 0;
#pragma unroll
    for (int k = 0; k < kNormedParts; ++k) of_warp += squares[w * 32 + lane + k * lanes];
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) of_warp += __shfl_xor_sync(0xFFFFFFFFu, of_warp, offset);
    if (lane == w) sum = of_warp;
  }
  for (int offset = lanes / 64; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
  sum = __shfl_sync(0xFFFFFFFFu, sum, 0);
  const float inverse = 1.0f / sqrtf(sum / static_cast<float>(units * 8) + in.eps);
  cp_async_wait<0>();
  std::uint32_t largest = 0;
  for (int u = static_cast<int>(threadIdx.x); u < units; u += kThreads) {
    Vector<float, 8> out = unpack<bfloat16>(values[u]);
    const Vector<float, 8> w = unpack<bfloat16>(gains[u]);
#pragma unroll
    for (int j = 0; j < 8; ++j) out[j] *= inverse;
    out = rounded<bfloat16>(out);
#pragma unroll
    for (int j = 0; j < 8; ++j) out[j] *= w[j];
    const Packed<bfloat16> value = pack<bfloat16>(out);
    if constexpr (kScales) {
      largest = largest_magnitude(value, largest);
      values[u] = value;
    } else {
      stage_unit<Codes, kUnits>(staged, u, make_uint4(value.words[0], value.words[1], value.words[2], value.words[3]));
    }
  }
  if constexpr (kScales) {
    __shared__ std::uint32_t largest_parts[kThreads / 32];
    const float scale = scale_for_f16(largest_of_block<kThreads>(largest, largest_parts));
    if (threadIdx.x == 0) row_scales[0] = inverse_of(scale);
    for (int u = static_cast<int>(threadIdx.x); u < units; u += kThreads)
      stage_unit<Codes, kUnits>(staged, u, scaled_to_f16(values[u], scale));
  }
}

}  // namespace quench::cuda
