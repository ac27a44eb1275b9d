#pragma once
// K tiles of the SM90 packed GEMM (packed_gemm.cu) in shared memory: codes and scales by cp.async, x by TMA.

#include <algorithm>

#include "core/cuda/common/packed_parts.cuh"
#include "core/cuda/common/packed_view.cuh"
#include "core/cuda/sm80/mma.cuh"
#include "core/cuda/sm90/ptx.cuh"

namespace quench::cuda::packed_wgmma {

using packed_gemm_tiles::decode_eight;
using packed_gemm_tiles::kPartK;
using packed_gemm_tiles::kParts;
using packed_gemm_tiles::kTileBytes;
using packed_gemm_tiles::kTileK;

inline constexpr int kThreads = 256, kTileRows = 128, kMostSplits = 8;
inline constexpr int kCodeStride = kTileBytes + 16;     // no bank conflicts of load_part()
inline constexpr int kBlockK = 64;                      // values of a row of x in 128 swizzled bytes
inline constexpr std::size_t kSharedBytes = 113 << 10;  // for two CTAs on an SM

// What a scale multiplies: half a part of 32 values (groups of 16), a part, or all of a K tile.
enum class ScaleSpan { half, part, tile };

template <class CodesType, int kRowCount, ScaleSpan kScaleSpan, bool kHasOffsets>
struct Shape {
  using Codes = CodesType;
  static constexpr int kRows = kRowCount, kAccumulators = kRows / 2;  // rows of x; a thread's sums
  static constexpr ScaleSpan kSpan = kScaleSpan;
  static constexpr bool kOffsets = kHasOffsets;
  static constexpr int kBlocks = kTileK<Codes> / kBlockK;
  static constexpr int kSpanK = kSpan == ScaleSpan::half   ? kPartK / 2
                                : kSpan == ScaleSpan::part ? kPartK
                                                           : kTileK<Codes>;
  static constexpr int kScales = kTileK<Codes> / kSpanK;  // scales of a weight row in a K tile
};

// A K tile in shared memory.
template <class S>
struct alignas(1024) Stage {
  std::uint8_t x[S::kBlocks][S::kRows * kBlockK * 2];
  alignas(16) std::uint8_t codes[kTileRows * kCodeStride];
  std::uint32_t scales[S::kScales][kTileRows];  // word that holds the scale
  float offsets[S::kOffsets ? S::kScales : 1][kTileRows];
  float totals[S::kOffsets ? S::kScales : 1][S::kRows];  // sums of x over a part
};
template <class S>
inline constexpr int kDepth = std::min(static_cast<int>(kSharedBytes / sizeof(Stage<S>)), 8);
inline constexpr int kSumStride = kTileRows + 4;
template <class S>
struct SharedSums {
  float sums[S::kRows][kSumStride];
};

struct Params {
  CUtensorMap x;
  int rows;
  PackedView w;
  GroupIndex group_of;  // span to quantization group
  int k_tiles, split_tiles, splits;
  PackedOutput out;
  const bfloat16* bias;   // optional
  bool constant_weights;  // read_only_weights.h
};

__device__ __forceinline__ void cp_async_4(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

// Copies of K tiles, a thread's part.
template <class S>
class TileLoader {
 public:
  using Codes = typename S::Codes;
  __device__ TileLoader(const Params& p, int first_row, int end) : p_(p), end_(end) {
    const int thread = static_cast<int>(threadIdx.x);
    const auto clamped = [&](int row) { return min(std::int64_t{first_row} + row, p.w.rows - 1); };
#pragma unroll
    for (int i = 0; i < 2; ++i)
      codes_[i] = p.w.codes + clamped(thread / 4 + i * kThreads / 4) * p.w.row_bytes + thread % 4 * 16;
    const std::int64_t first_group = clamped(thread % kTileRows) * p.w.groups;
    odd_ = p.w.scale_dtype != DType::f32 && first_group % 2 != 0;
    // Scales of a row, or, by the upper threads, offsets.
    factors_ = thread < kTileRows ? static_cast<const char*>(p.w.scales) +
                                        (p.w.scale_dtype == DType::f32 ? first_group : first_group / 2) * 4
                                  : reinterpret_cast<const char*>(p.w.offsets + first_group);
    halves_ = thread < kTileRows && p.w.scale_dtype != DType::f32;
  }
  // Codes, scales and offsets.
  __device__ __forceinline__ void load_weights(Stage<S>& stage, int k_tile) const {
    if (k_tile >= end_) return;
    const int thread = static_cast<int>(threadIdx.x), byte = k_tile * kTileBytes + thread % 4 * 16;
    const bool valid = byte < p_.w.row_bytes;
    const int offset = valid ? k_tile * kTileBytes : -(thread % 4 * 16);
    const std::uint32_t to = shared_address(stage.codes + thread / 4 * kCodeStride + thread % 4 * 16);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      cp_async_16(to + static_cast<std::uint32_t>(i * kThreads / 4 * kCodeStride), codes_[i] + offset, valid);
    if (!S::kOffsets && thread >= kTileRows) return;
    const int row = thread % kTileRows;
#pragma unroll
    for (int i = 0; i < S::kScales; ++i) {
      const int group = group_of(k_tile, i), word = halves_ ? (group + (odd_ ? 1 : 0)) / 2 : group;
      cp_async_4(thread < kTileRows ? static_cast<void*>(&stage.scales[i][row]) : &stage.offsets[i][row],
                 factors_ + std::int64_t{word} * 4);
    }
  }
  // By one thread.
  __device__ __forceinline__ void load_x(Stage<S>& stage, std::uint32_t barrier, int k_tile) const {
    if (k_tile >= end_ || threadIdx.x != 0) return;
    mbarrier_arrive_expect_tx(barrier, sizeof(stage.x));
#pragma unroll
    for (int i = 0; i < S::kBlocks; ++i)
      tma_load(shared_address(stage.x[i]), &p_.x, barrier, k_tile * kTileK<Codes> + i * kBlockK, 0);
  }
  [[nodiscard]] __device__ __forceinline__ int group_of(int k_tile, int span) const {
    return min(p_.group_of(k_tile * S::kScales + span), static_cast<int>(p_.w.groups) - 1);
  }

 private:
  const Params& p_;
  int end_;
  const std::uint8_t* codes_[2];
  const char* factors_;
  bool odd_, halves_;
};

// A thread's weight rows g and g + 8 of its warp.
struct Fragment {
  int g = static_cast<int>(threadIdx.x) % 32 / 4, t = static_cast<int>(threadIdx.x) % 4,
      row = static_cast<int>(threadIdx.x) / 32 * 16 + g;
};

// Scales of a thread's weight rows.
template <class S>
class RowScales {
 public:
  __device__ RowScales(const Params& p, int first_row) : dtype_(p.w.scale_dtype) {
    const Fragment fragment;
#pragma unroll
    for (int h = 0; h < 2; ++h)
      odd_[h] = min(std::int64_t{first_row} + fragment.row + 8 * h, p.w.rows - 1) * p.w.groups % 2 != 0;
  }
  // Scales of a span, whose group is `group`.
  __device__ __forceinline__ void get(const Stage<S>& stage, int span, int group, float (&scales)[2]) const {
    const Fragment fragment;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const std::uint32_t word = stage.scales[span][fragment.row + 8 * h];
      const bool upper = (group % 2 != 0) != odd_[h];
      if (dtype_ == DType::f32)
        scales[h] = __uint_as_float(word);
      else if (dtype_ == DType::bf16)
        scales[h] = __uint_as_float(upper ? word & 0xFFFF0000u : word << 16);
      else
        scales[h] = __half2float(__ushort_as_half(static_cast<unsigned short>(upper ? word >> 16 : word)));
    }
  }

 private:
  DType dtype_;
  bool odd_[2];
};

}  // namespace quench::cuda::packed_wgmma
