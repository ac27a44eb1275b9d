#pragma once
// Rows of x in shared memory for packed_tiles.cu, as they come or normalised on the way.

#include "core/cuda/common/pack.cuh"
#include "core/cuda/common/vector.cuh"

namespace quench::cuda {

// What products with few rows read. With `gain`, x is one row and RMSNorm of x + residual (core/ops/norm.h) is read.
struct TileInput {
  const bfloat16* x;
  int rows;
  const bfloat16* residual = nullptr;
  const bfloat16* gain = nullptr;
  bfloat16* sum = nullptr;  // x + residual, written by the first block
  float eps = 0;
};

inline constexpr std::int64_t kStagedPad = 4;  // in 16 bytes: rows of x lie in other banks of shared memory
inline constexpr int kMostNormedUnits = 1024;  // 16 bytes of a row that is normalised
inline constexpr int kNormedParts = 4;         // that a thread of the norm's own kernel has at most

// 16 bytes of 8 values of x as pairs in the order of Codes::decode_pairs(), where what the four lanes of a row read
// together lies together. kUnits: of a lane's codes of a piece.
template <class Codes, int kUnits>
__device__ inline void stage_unit(uint4* staged, int unit, uint4 v) {
  if constexpr (Codes::kBits == 4)
    v = make_uint4(__byte_perm(v.x, v.z, 0x5410), __byte_perm(v.x, v.z, 0x7632), __byte_perm(v.y, v.w, 0x5410),
                   __byte_perm(v.y, v.w, 0x7632));
  constexpr int kSpan = 4 * kUnits;
  const int within = unit % kSpan;
  staged[unit - within + within % kUnits * 4 + within / kUnits] = v;
}

template <class Codes, int kUnits, int kThreads>
__device__ inline void stage_rows(const TileInput& in, int units, uint4* staged) {
  for (int row = 0; row < in.rows; ++row)
    for (int u = static_cast<int>(threadIdx.x); u < units; u += kThreads)
      stage_unit<Codes, kUnits>(staged + row * (units + kStagedPad), u,
                                reinterpret_cast<const uint4*>(in.x)[row * units + u]);
}

// The bits of the norm's own kernel (core/cuda/layers/norm.cu), whose sum has the same order: of a row, `lanes` threads
// have a unit in each of kNormedParts turns, and come together by a tree over each warp and one over the warps.
template <class Codes, int kUnits, int kThreads>
__device__ inline void stage_normed_row(const TileInput& in, int units, uint4* staged) {
  __shared__ float squares[kMostNormedUnits];
  constexpr int kTurns = kMostNormedUnits / kThreads;
  int lanes = 32;
  while (lanes * kNormedParts < units) lanes *= 2;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Packed<bfloat16> value[kTurns], gain[kTurns];
#pragma unroll
  for (int k = 0; k < kTurns; ++k) {
    const int u = static_cast<int>(threadIdx.x) + k * kThreads;
    if (u >= lanes * kNormedParts) break;
    float part[2] = {};
    if (u < units) {
      value[k] = load_packed(in.x, u);
      const Packed<bfloat16> other = load_packed(in.residual, u);
      gain[k] = load_packed(in.gain, u);
      Vector<float, 8> total = unpack<bfloat16>(value[k]);
      const Vector<float, 8> addend = unpack<bfloat16>(other);
#pragma unroll
      for (int j = 0; j < 8; ++j) total[j] += addend[j];
      value[k] = pack<bfloat16>(total);
      if (blockIdx.x == 0) store_packed(in.sum, u, value[k]);
      total = unpack<bfloat16>(value[k]);
#pragma unroll
      for (int j = 0; j < 8; ++j) part[j % 2] = fmaf(total[j], total[j], part[j % 2]);
    }
    squares[u] = part[0] + part[1];
  }
  __syncthreads();
  float sum = 0;  // lane w: of warp w of those threads
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
#pragma unroll
  for (int k = 0; k < kTurns; ++k) {
    const int u = static_cast<int>(threadIdx.x) + k * kThreads;
    if (u >= units) break;
    Vector<float, 8> out = unpack<bfloat16>(value[k]);
    const Vector<float, 8> w = unpack<bfloat16>(gain[k]);
#pragma unroll
    for (int j = 0; j < 8; ++j) out[j] *= inverse;
    out = rounded<bfloat16>(out);
#pragma unroll
    for (int j = 0; j < 8; ++j) out[j] *= w[j];
    const Packed<bfloat16> normed = pack<bfloat16>(out);
    stage_unit<Codes, kUnits>(staged, u,
                              make_uint4(normed.words[0], normed.words[1], normed.words[2], normed.words[3]));
  }
}

}  // namespace quench::cuda
