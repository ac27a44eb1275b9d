// SM90 dequantizing GEMM of 2 to 64 rows: y = x W^T with codes of W in registers as the A operand of wgmma (64 weight
// rows a warpgroup), x in shared memory as B. Codes are exact in bf16; scales act on f32 sums. Codes and scales pass
// through shared memory by cp.async, x by TMA, kDepth K tiles ahead. Small weights are split along K over a cluster,
// whose CTAs add their sums in order through distributed shared memory.

#include <algorithm>

#include "core/cuda/common/pack.cuh"
#include "core/cuda/common/pdl.cuh"
#include "core/cuda/sm90/kernels.h"
#include "core/cuda/sm90/packed_stages.cuh"
#include "core/cuda/sm90/pipeline.cuh"
#include "core/cuda/sm90/tensor_map.h"
#include "core/device/read_only_weights.h"

namespace quench::cuda {
namespace {

using namespace packed_wgmma;

// A operands of the two MMAs of a part: of k the values 2 t, 2 t + 1, 2 t + 8, 2 t + 9.
template <class S>
__device__ __forceinline__ void load_part(const std::uint8_t* codes, int part, std::uint32_t (&a)[2][4]) {
  using Codes = typename S::Codes;
  const Fragment fragment;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const std::uint8_t* const row = codes + (fragment.row + 8 * h) * kCodeStride + part * kPartK * Codes::kBits / 8;
    std::uint32_t words[2] = {}, pairs[4];
    if constexpr (Codes::kBits == 4) {  // byte t of each word
      const uint4 four = *reinterpret_cast<const uint4*>(row);
      const unsigned bytes = static_cast<unsigned>(fragment.t) * 0x11 + 0x40;
      words[0] = __byte_perm(__byte_perm(four.x, four.y, bytes), __byte_perm(four.z, four.w, bytes), 0x5410);
    } else {
      const auto* const all = reinterpret_cast<const std::uint32_t*>(row) + fragment.t / 2;
      const unsigned halves = fragment.t % 2 == 0 ? 0x5410 : 0x7632;
      words[0] = __byte_perm(all[0], all[2], halves);
      words[1] = __byte_perm(all[4], all[6], halves);
    }
    decode_eight<Codes>(words, pairs);
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i / 2][i % 2 * 2 + h] = pairs[i];
  }
}

// Sums of x over parts, in shared memory: a thread for each row and part.
template <class S>
__device__ __forceinline__ void sum_x(Stage<S>& stage) {
  constexpr int kItems = S::kRows * kParts<typename S::Codes>;
  static_assert(kItems <= kThreads);
  const int part = static_cast<int>(threadIdx.x) / S::kRows, row = static_cast<int>(threadIdx.x) % S::kRows;
  if (threadIdx.x >= kItems) return;
  float total = 0;
#pragma unroll
  for (int u = 0; u < 4; ++u) {  // 16 bytes are at their place, exclusive or of the row's
    const int unit = part % 2 * 4 + u;
    const auto words = *reinterpret_cast<const uint4*>(stage.x[part / 2] + row * kBlockK * 2 + (unit ^ row % 8) * 16);
    for (const std::uint32_t word : {words.x, words.y, words.z, words.w}) {
      const float2 pair = unpack_pair<bfloat16>(word);
      total += pair.x + pair.y;
    }
  }
  stage.totals[part][row] = total;
}

// sums += scales * products (+ offsets * totals).
template <class S>
__device__ __forceinline__ void add_scaled(float (&sums)[S::kAccumulators], const float (&products)[S::kAccumulators],
                                           const Stage<S>& stage, const RowScales<S>& row_scales, int span, int group) {
  const Fragment fragment;
  float scales[2];
  row_scales.get(stage, span, group, scales);
#pragma unroll
  for (int i = 0; i < S::kAccumulators; ++i) sums[i] = fmaf(scales[i % 4 / 2], products[i], sums[i]);
  if constexpr (S::kOffsets) {
    const float offsets[2] = {stage.offsets[span][fragment.row], stage.offsets[span][fragment.row + 8]};
#pragma unroll
    for (int n = 0; n < S::kRows / 8; ++n) {
      const auto totals = *reinterpret_cast<const float2*>(&stage.totals[span][8 * n + 2 * fragment.t]);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums[4 * n + i] = fmaf(offsets[i / 2], i % 2 == 0 ? totals.x : totals.y, sums[4 * n + i]);
    }
  }
}

template <class S>
__device__ __forceinline__ void multiply_tile(float (&sums)[S::kAccumulators], const Stage<S>& stage,
                                              const TileLoader<S>& loader, const RowScales<S>& row_scales, int k_tile) {
  constexpr int kPartCount = kParts<typename S::Codes>;
  const auto b = [&](int step) {
    return smem_descriptor(shared_address(stage.x[step / 4]) + static_cast<std::uint32_t>(step % 4 * 32), 0);
  };
  const auto add = [&](float(&to)[S::kAccumulators], const float(&from)[S::kAccumulators], int span) {
    add_scaled<S>(to, from, stage, row_scales, span, loader.group_of(k_tile, span));
  };
  float products[S::kAccumulators];
  define_accumulators(products);
  std::uint32_t a[2][2][4];
  load_part<S>(stage.codes, 0, a[0]);
#pragma unroll
  for (int part = 0; part < kPartCount; ++part) {
    auto& own = a[part % 2];
    wgmma_fence_operand(products);
    wgmma_fence();
    wgmma_k16_bf16(products, own[0], b(2 * part), S::kSpan == ScaleSpan::tile && part > 0);
    if constexpr (S::kSpan == ScaleSpan::half) {
      wgmma_commit();
      wgmma_wait<0>();
      wgmma_fence_operand(products);
      add(sums, products, 2 * part);
      wgmma_fence_operand(products);
      wgmma_fence();
    }
    wgmma_k16_bf16(products, own[1], b(2 * part + 1), S::kSpan != ScaleSpan::half);
    wgmma_commit();
    if (part + 1 < kPartCount) {
      // Operands of the part before have been read.
      if constexpr (S::kSpan == ScaleSpan::tile) wgmma_wait<1>();
      load_part<S>(stage.codes, part + 1, a[(part + 1) % 2]);
    }
    if (S::kSpan != ScaleSpan::tile || part + 1 == kPartCount) {
      wgmma_wait<0>();
      wgmma_fence_operand(products);
      add(sums, products, S::kSpan == ScaleSpan::half ? 2 * part + 1 : S::kSpan == ScaleSpan::part ? part : 0);
    }
  }
}

// Element of the same place in CTA `rank` of the cluster.
__device__ inline float4 load_remote(const float* at, std::uint32_t rank) {
  float4 result;
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote];\n"
      "}\n"
      : "=f"(result.x), "=f"(result.y), "=f"(result.z), "=f"(result.w)
      : "r"(shared_address(at)), "r"(rank)
      : "memory");
  return result;
}

// Grid: splits of K, a cluster; tiles of weight rows.
template <class S>
__global__ __launch_bounds__(kThreads) void packed_wgmma_kernel(const __grid_constant__ Params p) {
#ifdef QUENCH_HAS_WGMMA
  extern __shared__ __align__(1024) std::uint8_t memory[];
  auto* const stages = reinterpret_cast<Stage<S>*>(memory);
  auto* const barriers = reinterpret_cast<std::uint64_t*>(stages + kDepth<S>);
  pdl_launch_dependents();
  const int first_row = static_cast<int>(blockIdx.y) * kTileRows;
  const int begin = static_cast<int>(blockIdx.x) * p.split_tiles, end = min(begin + p.split_tiles, p.k_tiles);
  const TileLoader<S> loader(p, first_row, end);
  const RowScales<S> row_scales(p, first_row);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kDepth<S>; ++i) mbarrier_init(shared_address(&barriers[i]), 1);
    fence_mbarrier_init();
  }
  if (!p.constant_weights) pdl_wait();
#pragma unroll
  for (int i = 0; i < kDepth<S> - 1; ++i) {
    loader.load_weights(stages[i], begin + i);
    cp_async_commit();
  }
  __syncthreads();
  if (p.constant_weights) pdl_wait();
#pragma unroll
  for (int i = 0; i < kDepth<S> - 1; ++i) loader.load_x(stages[i], shared_address(&barriers[i]), begin + i);
  float sums[S::kAccumulators] = {};
  int stage_index = 0;
  std::uint32_t phase = 0;
  for (int k_tile = begin; k_tile < end; ++k_tile) {
    Stage<S>& stage = stages[stage_index];
    cp_async_wait<kDepth<S> - 2>();
    __syncthreads();
    const int later = stage_index == 0 ? kDepth<S> - 1 : stage_index - 1, next = k_tile + kDepth<S> - 1;
    loader.load_weights(stages[later], next);
    cp_async_commit();
    loader.load_x(stages[later], shared_address(&barriers[later]), next);
    mbarrier_wait(shared_address(&barriers[stage_index]), phase);
    if constexpr (S::kOffsets) {
      sum_x(stage);
      __syncthreads();
    }
    multiply_tile<S>(sums, stage, loader, row_scales, k_tile);
    if (++stage_index == kDepth<S>) {
      stage_index = 0;
      phase ^= 1;
    }
  }

  // By rows of x, in shared memory.
  cp_async_wait<0>();
  __syncthreads();
  auto& shared = *reinterpret_cast<SharedSums<S>*>(memory);
  const Fragment fragment;
#pragma unroll
  for (int i = 0; i < S::kAccumulators; ++i)
    shared.sums[i / 4 * 8 + 2 * fragment.t + i % 2][fragment.row + i % 4 / 2 * 8] = sums[i];
  if (p.splits > 1)
    cluster_sync();
  else
    __syncthreads();
  const int fours = p.rows * kTileRows / 4, share = (fours + p.splits - 1) / p.splits;
  const int first = static_cast<int>(blockIdx.x) * share, last = min(first + share, fours);
  for (int i = first + static_cast<int>(threadIdx.x); i < last; i += kThreads) {
    const int x_row = i / (kTileRows / 4), row = i % (kTileRows / 4) * 4;
    const float* const from = &shared.sums[x_row][row];
    float total[4] = {};
    if (p.splits == 1) {
#pragma unroll
      for (int j = 0; j < 4; ++j) total[j] = from[j];
    } else {
      for (int rank = 0; rank < p.splits; ++rank) {
        const float4 part = load_remote(from, static_cast<std::uint32_t>(rank));
        total[0] += part.x;
        total[1] += part.y;
        total[2] += part.z;
        total[3] += part.w;
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int output = first_row + row + j;
      if (output < p.w.rows)
        p.out.write<bfloat16>(x_row, output, total[j] + (p.bias != nullptr ? to_float(p.bias[output]) : 0.0f));
    }
  }
  if (p.splits > 1) cluster_sync();  // sums are read by the others
#endif
}

// Splits of K by the weight's shape alone: CTAs for two on each SM, of a K tile or more.
int splits_for(Device device, std::int64_t tiles, int k_tiles) {
  int splits = 1;
  while (splits < kMostSplits && tiles * splits * 2 <= 2 * std::int64_t{sm_count(device)} && splits * 2 <= k_tiles)
    splits *= 2;
  return splits;
}

template <class S>
void launch_shape(const OpLaunch& launch, const PackedLinearArgs& args) {
  const PackedMatrix& m = args.weight;
  const std::int64_t rows = args.x.size(0), tiles = (m.rows() + kTileRows - 1) / kTileRows;
  Params params{
      .x = make_tensor_map(args.x, S::kRows, kBlockK),
      .rows = static_cast<int>(rows),
      .w = PackedView(m),
      .group_of = GroupIndex(m.groups() == 1 ? static_cast<int>(std::max<std::int64_t>(1, m.columns() / S::kSpanK))
                                             : static_cast<int>(m.group_size() / S::kSpanK)),
      .k_tiles = static_cast<int>((m.columns() + kTileK<typename S::Codes> - 1) / kTileK<typename S::Codes>),
      .out = {args.y.raw_data(), args.y.stride(0), args.y.dtype() == DType::f32},
      .bias = args.bias.defined() ? args.bias.data<bfloat16>() : nullptr,
      .constant_weights = ReadOnlyWeightsScope::of_packed()};
  params.splits = splits_for(launch.device(), tiles, params.k_tiles);
  params.split_tiles = (params.k_tiles + params.splits - 1) / params.splits;
  launch.early_clusters(rows, static_cast<unsigned>(params.splits), packed_wgmma_kernel<S>,
                        dim3(static_cast<unsigned>(params.splits), static_cast<unsigned>(tiles)), kThreads,
                        std::max((sizeof(Stage<S>) + sizeof(std::uint64_t)) * kDepth<S>, sizeof(SharedSums<S>)),
                        params);
}

template <class Codes, int kRows>
void launch_rows(const OpLaunch& launch, const PackedLinearArgs& args) {
  const PackedMatrix& m = args.weight;
  if (m.offsets().defined()) return launch_shape<Shape<Codes, kRows, ScaleSpan::part, true>>(launch, args);
  if (m.groups() == 1 || m.group_size() % kTileK<Codes> == 0)
    return launch_shape<Shape<Codes, kRows, ScaleSpan::tile, false>>(launch, args);
  if constexpr (std::is_same_v<Codes, Int8>)
    if (m.group_size() % kPartK != 0) return launch_shape<Shape<Codes, kRows, ScaleSpan::half, false>>(launch, args);
  launch_shape<Shape<Codes, kRows, ScaleSpan::part, false>>(launch, args);
}

template <class Codes>
void launch_codes(const OpLaunch& launch, const PackedLinearArgs& args) {
  const std::int64_t rows = args.x.size(0);
  if (rows <= 8)
    launch_rows<Codes, 8>(launch, args);
  else if (rows <= 16)
    launch_rows<Codes, 16>(launch, args);
  else if (rows <= 32)
    launch_rows<Codes, 32>(launch, args);
  else
    launch_rows<Codes, 64>(launch, args);
}

}  // namespace

bool packed_gemm_sm90(const OpLaunch& launch, const PackedLinearArgs& args) {
  // Scales are copied in words, groups found by a multiplication.
  const PackedMatrix& m = args.weight;
  const bool fits = reinterpret_cast<std::uintptr_t>(m.scales().raw_data()) % 4 == 0 &&
                    m.columns() * m.group_size() < std::int64_t{1} << 31;
  if (!has_sm90_code(launch.device()) || (m.groups() > 1 && !fits)) return false;
  switch (args.weight.codes().dtype()) {
    case DType::i4: launch_codes<Int4>(launch, args); break;
    case DType::i8: launch_codes<Int8>(launch, args); break;
    case DType::f4_e2m1: launch_codes<Float4>(launch, args); break;
    default: launch_codes<Float8>(launch, args); break;
  }
  return true;
}

}  // namespace quench::cuda
