// Weights and x pass through shared memory by cp.async, kStages K tiles ahead. A CTA has kTileRows rows of the weight,
// 16 a warp, and all rows of x as columns of the MMAs (m16n8k16). Codes become bf16 pairs in registers, exactly; scales
// act on f32 sums of a group. Small weights are split along K: partial sums are added in order by a second kernel.

#include "core/cuda/gemm/packed_gemm.h"

#include <algorithm>

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pdl.cuh"
#include "core/cuda/gemm/packed_gemm_tiles.cuh"
#include "core/cuda/sm90/kernels.h"

namespace quench::cuda {

using namespace packed_gemm_tiles;

namespace {

// Lane's place in the fragments, groupID and threadID_in_group of the PTX ISA.
struct Lane {
  int g = static_cast<int>(threadIdx.x) % 32 / 4, t = static_cast<int>(threadIdx.x) % 4;
};

// Sums of the lane's columns of x over a part, by MMAs with ones: element i of column 2 t + i % 2.
__device__ __forceinline__ void part_totals(float (&totals)[4], const uint4& b) {
  constexpr std::uint32_t kOnes = 0x3F803F80u;
#pragma unroll
  for (float& total : totals) total = 0;
  mma_m16n8k16_bf16(totals, {kOnes, kOnes, kOnes, kOnes}, b.x, b.y);
  mma_m16n8k16_bf16(totals, {kOnes, kOnes, kOnes, kOnes}, b.z, b.w);
}

// Totals of all parts: warp w has column tile w.
template <class S>
__device__ __forceinline__ void sum_inputs(Stage<S>& stage) {
  using Codes = typename S::Codes;
  constexpr int kColumnTiles = S::kColumnTiles;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const Lane lane;
  if (warp >= kColumnTiles) return;
#pragma unroll
  for (int part = 0; part < kParts<Codes>; ++part) {
    const auto b = *reinterpret_cast<const uint4*>(
        &stage.inputs[(warp * 8 + lane.g) * kInputStride<Codes> + (part * kPartK + lane.t * 8) * 2]);
    float totals[4];
    part_totals(totals, b);
    if (lane.g == 0) {
      stage.totals[part][warp * 8 + 2 * lane.t] = totals[0];
      stage.totals[part][warp * 8 + 2 * lane.t + 1] = totals[1];
    }
  }
}

// A lane's values of a part in two rows of the weight, 8 apart: values 8 t to 8 t + 7, or, of halves, 4 t to 4 t + 3 of
// each.
template <class S>
__device__ __forceinline__ void load_pairs(const Stage<S>& stage, int row, int part, std::uint32_t (&pairs)[2][4]) {
  using Codes = typename S::Codes;
  const Lane lane;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const std::uint8_t* const codes =
        &stage.codes[(row + 8 * h) * kCodeStride<Codes> + part * kPartK * Codes::kBits / 8];
    std::uint32_t words[2] = {};
    if constexpr (Codes::kBits == 4) {
      words[0] = reinterpret_cast<const std::uint32_t*>(codes)[lane.t];
    } else if constexpr (S::kHalves) {
      words[0] = reinterpret_cast<const std::uint32_t*>(codes)[lane.t];
      words[1] = reinterpret_cast<const std::uint32_t*>(codes)[lane.t + 4];
    } else {
      const uint2 two = reinterpret_cast<const uint2*>(codes)[lane.t];
      words[0] = two.x;
      words[1] = two.y;
    }
    decode_eight<Codes>(words, pairs[h]);
  }
}

// The same values of a row of x.
template <class S>
__device__ __forceinline__ uint4 load_inputs(const Stage<S>& stage, int row, int part) {
  const std::uint8_t* const inputs = &stage.inputs[row * kInputStride<typename S::Codes> + part * kPartK * 2];
  const Lane lane;
  if constexpr (!S::kHalves) return reinterpret_cast<const uint4*>(inputs)[lane.t];
  const uint2 low = reinterpret_cast<const uint2*>(inputs)[lane.t],
              high = reinterpret_cast<const uint2*>(inputs)[lane.t + 4];
  return make_uint4(low.x, low.y, high.x, high.y);
}

// Adds a K tile to the warp's sums: element i of column tile n is row g + 8 (i / 2), column 8 n + 2 t + i % 2.
template <class S>
__device__ __forceinline__ void multiply_tile(float (&sums)[S::kColumnTiles][4], const Stage<S>& stage) {
  const Lane lane;
  const int row = static_cast<int>(threadIdx.x) / 32 * 16 + lane.g;
#pragma unroll
  for (int part = 0; part < kParts<typename S::Codes>; ++part) {
    std::uint32_t pairs[2][4];
    load_pairs(stage, row, part, pairs);
    const std::uint32_t a0[4] = {pairs[0][0], pairs[1][0], pairs[0][1], pairs[1][1]},
                        a1[4] = {pairs[0][2], pairs[1][2], pairs[0][3], pairs[1][3]};
    const int group = S::kHalves ? 2 * part : part;
    const float scales[2] = {stage.scales[group][row], stage.scales[group][row + 8]};
#pragma unroll
    for (int n = 0; n < S::kColumnTiles; ++n) {
      const uint4 b = load_inputs(stage, n * 8 + lane.g, part);
      float products[4] = {};
      mma_m16n8k16_bf16(products, a0, b.x, b.y);
      if constexpr (S::kHalves) {
        float others[4] = {};
        mma_m16n8k16_bf16(others, a1, b.z, b.w);
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[n][i] = fmaf(stage.scales[group + 1][row + i / 2 * 8], others[i], sums[n][i]);
      } else {
        mma_m16n8k16_bf16(products, a1, b.z, b.w);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] = fmaf(scales[i / 2], products[i], sums[n][i]);
      if constexpr (S::kOffsets) {
        float totals[4];
        if constexpr (S::kOwnTotals) {
          part_totals(totals, b);
        } else {
          const auto two = *reinterpret_cast<const float2*>(&stage.totals[part][n * 8 + 2 * lane.t]);
          totals[0] = totals[2] = two.x;
          totals[1] = totals[3] = two.y;
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[n][i] = fmaf(stage.offsets[part][row + i / 2 * 8], totals[i], sums[n][i]);
      }
    }
  }
}

// Grid: tiles of weight rows, splits of K.
template <class S>
__global__ __launch_bounds__(kThreads, 2) void packed_gemm_kernel(const __grid_constant__ Params p) {
  using StageType = Stage<S>;
  constexpr int kColumnTiles = S::kColumnTiles;
  constexpr int kDepth = kStages<kColumnTiles>;
  extern __shared__ uint4 shared[];
  auto* const stages = reinterpret_cast<StageType*>(shared);
  pdl_sync();
  const int first_row = static_cast<int>(blockIdx.x) * kTileRows;
  const int begin = static_cast<int>(blockIdx.y) * p.split_tiles, end = min(begin + p.split_tiles, p.k_tiles);
  TileLoader<S> loader(p, first_row);
#pragma unroll
  for (int i = 0; i < kDepth - 1; ++i) {
    if (begin + i < end) {
      loader.load_codes(stages[i], begin + i);
      loader.load_inputs(stages[i], begin + i);
      loader.fetch_factors(begin + i);
      loader.store_factors(stages[i]);
    }
    cp_async_commit();
  }
  if (begin + kDepth - 1 < end) loader.fetch_factors(begin + kDepth - 1);
  float sums[kColumnTiles][4] = {};
  for (int k_tile = begin; k_tile < end; ++k_tile) {
    const int at = k_tile - begin;
    StageType& stage = stages[at % kDepth];
    cp_async_wait<kDepth - 2>();
    __syncthreads();
    const int next = k_tile + kDepth - 1;
    if (next < end) {
      StageType& later = stages[(at + kDepth - 1) % kDepth];
      loader.load_codes(later, next);
      loader.load_inputs(later, next);
      loader.store_factors(later);
      if (next + 1 < end) loader.fetch_factors(next + 1);
    }
    cp_async_commit();
    if constexpr (S::kSharedTotals) {
      sum_inputs(stage);
      __syncthreads();
    }
    multiply_tile(sums, stage);
  }

  // By rows of x, through shared memory.
  cp_async_wait<0>();
  __syncthreads();
  constexpr int kStride = kTileRows + 4;
  auto* const tile = reinterpret_cast<float*>(shared);
  const Lane lane;
  const int row = static_cast<int>(threadIdx.x) / 32 * 16 + lane.g;
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) tile[(n * 8 + 2 * lane.t + i % 2) * kStride + row + i / 2 * 8] = sums[n][i];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < p.rows * kTileRows; i += kThreads) {
    const int x_row = i / kTileRows, output = first_row + i % kTileRows;
    if (output >= p.w.rows) continue;
    const float sum = tile[x_row * kStride + i % kTileRows];
    if (p.splits == 1)
      p.out.write<bfloat16>(x_row, output, sum + (p.bias != nullptr ? to_float(p.bias[output]) : 0.0f));
    else
      p.partial[(std::int64_t{blockIdx.y} * p.rows + x_row) * p.w.rows + output] = sum;
  }
}

__global__ __launch_bounds__(kReduceThreads) void add_splits_kernel(const __grid_constant__ Params p) {
  pdl_sync();
  const std::int64_t count = p.rows * p.w.rows, i = std::int64_t{blockIdx.x} * kReduceThreads + threadIdx.x;
  if (i >= count) return;
  float sum = 0;
#pragma unroll 4
  for (int split = 0; split < p.splits; ++split) sum += p.partial[split * count + i];
  const std::int64_t output = i % p.w.rows;
  p.out.write<bfloat16>(i / p.w.rows, output, sum + (p.bias != nullptr ? to_float(p.bias[output]) : 0.0f));
}

// Splits of K: two CTAs for each SM, none of less than two K tiles. By the weight's shape alone.
int splits_for(Device device, std::int64_t tiles, int k_tiles) {
  const std::int64_t wanted = 2 * std::int64_t{sm_count(device)} / tiles;
  return static_cast<int>(std::clamp<std::int64_t>(wanted, 1, std::max(1, k_tiles / 2)));
}

template <class Codes, int kColumnTiles>
void launch_gemm(const OpLaunch& launch, const PackedLinearArgs& args) {
  const PackedMatrix& m = args.weight;
  const std::int64_t rows = args.x.size(0), tiles = (m.rows() + kTileRows - 1) / kTileRows;
  Params params{.x = args.x.data<bfloat16>(),
                .rows = static_cast<int>(rows),
                .w = PackedView(m),
                .k_tiles = static_cast<int>((m.columns() + kTileK<Codes> - 1) / kTileK<Codes>),
                .out = {args.y.raw_data(), args.y.stride(0), args.y.dtype() == DType::f32},
                .bias = args.bias.defined() ? args.bias.data<bfloat16>() : nullptr};
  const int wanted = splits_for(launch.device(), tiles, params.k_tiles);
  params.split_tiles = (params.k_tiles + wanted - 1) / wanted;
  params.splits = (params.k_tiles + params.split_tiles - 1) / params.split_tiles;
  const MemoryScope scope(MemoryCategory::workspace);
  Tensor partial;
  if (params.splits > 1) {
    partial = Tensor::empty({params.splits, rows, m.rows()}, DType::f32, launch.device());
    params.partial = partial.data<float>();
  }
  const auto run = [&]<bool kOffsets, bool kHalves>() {
    using S = Shape<Codes, kColumnTiles, kOffsets, kHalves>;
    constexpr std::size_t kOutput = sizeof(float) * kColumnTiles * 8 * (kTileRows + 4);
    launch.early(rows, packed_gemm_kernel<S>, dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(params.splits)),
                 kThreads, std::max(sizeof(Stage<S>) * kStages<kColumnTiles>, kOutput), params);
  };
  if (m.offsets().defined())
    run.template operator()<true, false>();
  else if (std::is_same_v<Codes, Int8> && m.groups() > 1 && m.group_size() % kPartK != 0)
    run.template operator()<false, std::is_same_v<Codes, Int8>>();
  else
    run.template operator()<false, false>();
  if (params.splits > 1)
    launch.early(rows, add_splits_kernel,
                 static_cast<unsigned>((rows * m.rows() + kReduceThreads - 1) / kReduceThreads), kReduceThreads, 0,
                 params);
}

template <class Codes>
void multiply(const OpLaunch& launch, const PackedLinearArgs& args) {
  const std::int64_t rows = args.x.size(0);
  if (rows <= 8)
    launch_gemm<Codes, 1>(launch, args);
  else if (rows <= 16)
    launch_gemm<Codes, 2>(launch, args);
  else if (rows <= 32)
    launch_gemm<Codes, 4>(launch, args);
  else
    launch_gemm<Codes, 8>(launch, args);
}

bool aligned(const Tensor& t) {
  return reinterpret_cast<std::uintptr_t>(t.raw_data()) % 16 == 0;
}

}  // namespace

bool packed_gemm_supports(const Tensor& x, const PackedMatrix& m) {
  // Q6_K has halves.
  const std::int64_t least = m.codes().dtype() == DType::i8 && !m.offsets().defined() ? kPartK / 2 : kPartK;
  const std::int64_t columns = m.columns(), row_bytes = columns * bit_width(m.codes().dtype()) / 8;
  return x.dtype() == DType::bf16 && x.is_contiguous() && x.size(0) <= kPackedGemmRows && aligned(x) &&
         aligned(m.codes()) && columns % kPartK == 0 && row_bytes % 16 == 0 && columns < (std::int64_t{1} << 24) &&
         m.rows() * m.groups() < (std::int64_t{1} << 31) && (m.groups() == 1 || m.group_size() % least == 0);
}

void packed_gemm(const PackedLinearArgs& args) {
  const PackedMatrix& m = args.weight;
  const OpLaunch launch("packed_linear", {&args.x, &m.codes(), &m.scales(), &m.offsets(), &args.y, &args.bias});
  if (packed_gemm_sm90(launch, args)) return;
  switch (m.codes().dtype()) {
    case DType::i4: return multiply<Int4>(launch, args);
    case DType::i8: return multiply<Int8>(launch, args);
    case DType::f4_e2m1: return multiply<Float4>(launch, args);
    default: return multiply<Float8>(launch, args);
  }
}

}  // namespace quench::cuda
