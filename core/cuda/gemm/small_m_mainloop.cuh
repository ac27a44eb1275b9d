#pragma once
// Mainloop of the small-M GEMM (mma.m16n8k16, f32 accumulators). Weights go from global memory to registers, kept
// kKTilesInFlight K tiles ahead, and are dequantized there; x is staged in shared memory (staged_rows.cuh). The K order
// and the order of additions depend on the shape alone.

#include "core/cuda/common/packed_codes.cuh"
#include "core/cuda/common/pdl.cuh"
#include "core/cuda/gemm/small_m_tile_scheduler.cuh"

namespace quench::cuda {

// a [16,16] and b [16,8] in Pair, c [16,8] in f32. Fragments, with g = lane / 4 and t = lane % 4: a at (g, 2t), (g + 8,
// 2t), (g, 2t + 8), (g + 8, 2t + 8); b at (2t, g), (2t + 8, g); c at (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t +
// 1). The K order is free if equal in a and b.
template <class Pair>
__device__ __forceinline__ void mma_m16n8k16(float (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,
                                             std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
  if constexpr (std::is_same_v<Pair, bfloat16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Address and length: multiples of 16.
__device__ __forceinline__ void bulk_prefetch_l2(const void* address, int bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(address), "r"(bytes));
#endif
}

// Four pairs, in the order of the staged x.
template <class Codes>
__device__ __forceinline__ void decode_unit(const uint4& codes, int unit, std::uint32_t (&pairs)[4]) {
  const std::uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
  if constexpr (Codes::kBits == 16) {
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = words[i];
  } else if constexpr (Codes::kBits == 4) {
    Codes::decode_pairs(words[unit], pairs);
  } else {
    Codes::decode_pairs(words[2 * unit], *reinterpret_cast<std::uint32_t(*)[2]>(&pairs[0]));
    Codes::decode_pairs(words[2 * unit + 1], *reinterpret_cast<std::uint32_t(*)[2]>(&pairs[2]));
  }
}

// The warp's weights in flight: per lane, rows g and g + 8 of an output tile, with raw scales (converted after the load
// latency). kRowScales: no scales (16 bits), or one per row without offsets (8 bits).
template <class Codes, bool kRowScales>
struct WeightLoader {
  const SmallMParams& p;
  const uint4* codes[2];  // the output tile's rows
  int groups[2];          // first group of the rows
  uint4 words[kKTilesInFlight][2];
  std::uint32_t scales[kKTilesInFlight][2];
  std::uint32_t row_scales[2] = {};

  __device__ WeightLoader(const SmallMParams& params, int tile) : p(params) { set_tile(tile); }

  // Later loads are of this output tile.
  __device__ __forceinline__ void set_tile(int tile) {
    const TileRows rows(tile, p.w.rows, p.gated);
    const FragmentLane lane;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const std::int64_t row = rows[lane.g + 8 * h];
      codes[h] = reinterpret_cast<const uint4*>(p.w.codes + row * p.w.row_bytes) + lane.t;
      groups[h] = static_cast<int>(row * p.w.groups);
    }
  }
  __device__ __forceinline__ void load_row_scales() {
    if constexpr (kRowScales && Codes::kBits < 16)
#pragma unroll
      for (int h = 0; h < 2; ++h) row_scales[h] = p.w.scale_bits(groups[h]);
  }
  __device__ __forceinline__ void load(int stage, int k_tile, int k_end) {
    if (k_tile >= k_end) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      words[stage][h] = load_weights(codes[h] + k_tile * 4);
      if constexpr (!kRowScales) scales[stage][h] = p.w.scale_bits(groups[h] + p.group_of(k_tile));
    }
  }
  __device__ __forceinline__ void load_first(const SmallMTileScheduler& work) {
#pragma unroll
    for (int stage = 0; stage < kKTilesInFlight; ++stage) load(stage, work.k_begin + stage, work.k_end);
    load_row_scales();
  }
  // L2 prefetch of all K tiles.
  __device__ __forceinline__ void prefetch(const SmallMTileScheduler& work) const {
    if (FragmentLane().t % 2 == 0)
      for (int k_tile = work.k_begin; k_tile < work.k_end; ++k_tile)
#pragma unroll
        for (int h = 0; h < 2; ++h) prefetch_l2(codes[h] + k_tile * 4);
  }
  // L2 prefetch of the K tiles that follow those in flight.
  __device__ __forceinline__ void prefetch_ahead(const SmallMTileScheduler& work) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int next = work.k_begin + kKTilesInFlight, count = min(work.k_end - next, kKTilesAhead);
    if (count <= 0 || lane >= kTileRows) return;
    const TileRows rows(work.tile, p.w.rows, p.gated);
    const std::int64_t row = rows[lane];
    bulk_prefetch_l2(p.w.codes + row * p.w.row_bytes + next * kKTileBytes, count * kKTileBytes);
    if (!kRowScales && p.w.groups > 1) prefetch_l2(p.w.scale_address(row * p.w.groups + p.group_of(next)));
  }
  // First loads, before pdl_wait() where weights are constant.
  __device__ __forceinline__ void prologue(const SmallMTileScheduler& work) {
    if (!p.constant_weights) {
      prefetch(work);
      pdl_wait();
    }
    load_first(work);
    if (p.constant_weights) {
      prefetch_ahead(work);
      pdl_wait();
    }
  }
};

// x of the lane's row g (column g of b), in shared memory.
template <class Codes>
struct StagedRow {
  const uint4* row;

  __device__ StagedRow(const uint4* staged, const SmallMParams& p) {
    const FragmentLane lane;
    row = staged + min(lane.g, p.in.rows - 1) * (static_cast<int>(p.w.columns / 8) + kStagedPad) + lane.t;
  }
  __device__ __forceinline__ uint4 unit(int k_tile, int unit) const {
    return row[(k_tile * kUnitsPerLane<Codes> + unit) * 4];
  }
};

// Two independent chains of MMA, c[0] and c[1].
template <class Codes>
__device__ __forceinline__ void mma_k_tile(float (&c)[2][4], const uint4 (&words)[2], const StagedRow<Codes>& x,
                                           int k_tile) {
#pragma unroll
  for (int unit = 0; unit < kUnitsPerLane<Codes>; ++unit) {
    const uint4 b = x.unit(k_tile, unit);
    std::uint32_t a[2][4];
    decode_unit<Codes>(words[0], unit, a[0]);
    decode_unit<Codes>(words[1], unit, a[1]);
    mma_m16n8k16<typename Codes::Pair>(c[0], a[0][0], a[1][0], a[0][1], a[1][1], b.x, b.y);
    mma_m16n8k16<typename Codes::Pair>(c[1], a[0][2], a[1][2], a[0][3], a[1][3], b.z, b.w);
  }
}

// Offset times the sum of x over the K tile, an MMA with ones.
template <class Codes>
__device__ __forceinline__ void add_offsets(float (&sums)[4], const SmallMParams& p, const int (&groups)[2],
                                            const StagedRow<Codes>& x, int k_tile) {
  using Pair = typename Codes::Pair;
  constexpr std::uint32_t kOnes = std::is_same_v<Pair, bfloat16> ? 0x3F803F80 : 0x3C003C00;
  float totals[4] = {};
#pragma unroll
  for (int unit = 0; unit < kUnitsPerLane<Codes>; ++unit) {
    const uint4 b = x.unit(k_tile, unit);
    mma_m16n8k16<Pair>(totals, kOnes, kOnes, kOnes, kOnes, b.x, b.y);
    mma_m16n8k16<Pair>(totals, kOnes, kOnes, kOnes, kOnes, b.z, b.w);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] = fmaf(p.w.offsets[groups[i / 2] + p.group_of(k_tile)], totals[i], sums[i]);
}

// Adds the warp's K tiles to `sums` (layout of c above). With `last` false and overlaps_tiles the loader is left at the
// next output tile, its first loads in flight.
template <class Codes, bool kRowScales>
__device__ __forceinline__ void small_m_mainloop(float (&sums)[4], WeightLoader<Codes, kRowScales>& loader,
                                                 const StagedRow<Codes>& x, const SmallMTileScheduler& work,
                                                 bool last) {
  const PackedView& w = loader.p.w;
  const int groups[2] = {loader.groups[0], loader.groups[1]};
  const std::uint32_t row_scales[2] = {loader.row_scales[0], loader.row_scales[1]};
  for (int first = work.k_begin; first < work.k_end; first += kKTilesInFlight) {
    const bool to_next_tile = work.overlaps_tiles && !last && first + kKTilesInFlight == work.k_end;
    if (to_next_tile) {
      loader.set_tile(work.tile + work.tile_step);
      loader.load_row_scales();
    }
    float c[2][4] = {};
#pragma unroll
    for (int stage = 0; stage < kKTilesInFlight; ++stage) {
      const int k_tile = first + stage;
      if (k_tile >= work.k_end) break;
      mma_k_tile(c, loader.words[stage], x, k_tile);
      float factors[2];  // before load() replaces them
      if constexpr (!kRowScales)
#pragma unroll
        for (int h = 0; h < 2; ++h) factors[h] = w.scale_of(loader.scales[stage][h]);
      loader.load(stage, to_next_tile ? work.k_begin + stage : k_tile + kKTilesInFlight, work.k_end);
      if constexpr (!kRowScales) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[i] = fmaf(factors[i / 2], c[0][i] + c[1][i], sums[i]);
          c[0][i] = c[1][i] = 0;
        }
        if (w.offsets != nullptr) add_offsets(sums, loader.p, groups, x, k_tile);
      }
    }
    if constexpr (kRowScales)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[i] += c[0][i] + c[1][i];
  }
  if constexpr (kRowScales && Codes::kBits < 16)
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] *= w.scale_of(row_scales[i / 2]);
}

}  // namespace quench::cuda
