#pragma once
// K tiles of the packed GEMM (packed_gemm.cu) in shared memory.

#include "core/cuda/common/pack.cuh"
#include "core/cuda/common/packed_parts.cuh"
#include "core/cuda/common/packed_view.cuh"
#include "core/cuda/sm80/mma.cuh"

namespace quench::cuda::packed_gemm_tiles {

inline constexpr int kThreads = 256, kWarps = kThreads / 32;
inline constexpr int kTileRows = 16 * kWarps;  // weight rows of a CTA
inline constexpr int kReduceThreads = 256;

// Bytes from row to row in shared memory, without bank conflicts of the loads below.
template <class Codes>
inline constexpr int kCodeStride = Codes::kBits == 4 ? 80 : 96;
template <class Codes>
inline constexpr int kInputStride = kTileK<Codes> * 2 + 64;
template <int kColumnTiles>
inline constexpr int kStages = kColumnTiles == 8 ? 3 : 4;

// Template parameters of a kernel. kHalves: groups of 16, halves of a part.
template <class CodesType, int kColumnTileCount, bool kHasOffsets, bool kHasHalves>
struct Shape {
  using Codes = CodesType;
  static constexpr int kColumnTiles = kColumnTileCount;  // each 8 rows of x
  static constexpr bool kOffsets = kHasOffsets, kHalves = kHasHalves;
  // Sums of x, which offsets multiply: of each warp for itself, or by one warp a column tile for all.
  static constexpr bool kOwnTotals = kOffsets && kColumnTiles <= 2, kSharedTotals = kOffsets && !kOwnTotals;
  static constexpr int kGroupK = kHalves ? kPartK / 2 : kPartK;
  static constexpr int kGroups = kTileK<Codes> / kGroupK;  // at most in a K tile
};

// A K tile in shared memory.
template <class S>
struct Stage {
  using Codes = typename S::Codes;
  static constexpr int kColumnTiles = S::kColumnTiles;
  static constexpr bool kOffsets = S::kOffsets;
  std::uint8_t codes[kTileRows * kCodeStride<Codes>];
  std::uint8_t inputs[kColumnTiles * 8 * kInputStride<Codes>];
  float scales[S::kGroups][kTileRows];
  float offsets[kOffsets ? kParts<Codes> : 1][kTileRows];
  float totals[S::kSharedTotals ? kParts<Codes> : 1][kColumnTiles * 8];  // sums of x over a part
};

struct Params {
  const bfloat16* x;
  int rows;  // number of rows of x
  PackedView w;
  int k_tiles, split_tiles, splits;
  float* partial;  // [splits, rows, N]; null for one split
  PackedOutput out;
  const bfloat16* bias;  // optional
};

// Copies of K tiles to shared memory.
template <class S>
class TileLoader {
 public:
  using Codes = typename S::Codes;
  using StageType = Stage<S>;
  static constexpr int kColumnTiles = S::kColumnTiles, kGroups = S::kGroups;
  static constexpr bool kOffsets = S::kOffsets;
  __device__ TileLoader(const Params& p, int first_row) : p_(p), first_row_(first_row) {}

  // Codes; weights may be read before pdl_wait() where nothing writes them.
  __device__ void load_codes(StageType& stage, int k_tile) const {
#pragma unroll
    for (int i = 0; i < kTileRows * 4 / kThreads; ++i) {
      const int chunk = i * kThreads + static_cast<int>(threadIdx.x), row = chunk / 4;
      const std::int64_t byte = std::int64_t{k_tile} * kTileBytes + chunk % 4 * 16;
      const std::int64_t weight_row = min(std::int64_t{first_row_} + row, p_.w.rows - 1);
      cp_async_16(address(&stage.codes[row * kCodeStride<Codes> + chunk % 4 * 16]),
                  p_.w.codes + weight_row * p_.w.row_bytes + min(byte, p_.w.row_bytes - 16), byte < p_.w.row_bytes);
    }
  }
  __device__ void load_inputs(StageType& stage, int k_tile) const {
    constexpr int kRowChunks = kTileK<Codes> / 8, kChunks = kColumnTiles * 8 * kRowChunks;
#pragma unroll
    for (int i = 0; i < (kChunks + kThreads - 1) / kThreads; ++i) {
      const int chunk = i * kThreads + static_cast<int>(threadIdx.x), row = chunk / kRowChunks;
      if (kChunks % kThreads != 0 && chunk >= kChunks) break;
      const std::int64_t k = std::int64_t{k_tile} * kTileK<Codes> + chunk % kRowChunks * 8;
      cp_async_16(address(&stage.inputs[row * kInputStride<Codes> + chunk % kRowChunks * 16]),
                  p_.x + min(row, p_.rows - 1) * p_.w.columns + min(k, p_.w.columns - 8),
                  row < p_.rows && k < p_.w.columns);
    }
  }
  // Scales of the thread's row, or, by the upper threads, offsets, on their way to a stage.
  __device__ void fetch_factors(int k_tile) {
    const int row = static_cast<int>(threadIdx.x) % kTileRows;
    if (!kOffsets && threadIdx.x >= kTileRows) return;
    const std::int64_t first = min(std::int64_t{first_row_} + row, p_.w.rows - 1) * p_.w.groups;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const std::int64_t k = std::int64_t{k_tile} * kTileK<Codes> + i * S::kGroupK;
      const auto group =
          static_cast<int>(min(static_cast<int>(k) / static_cast<int>(p_.w.group), static_cast<int>(p_.w.groups) - 1));
      if (threadIdx.x < kTileRows)
        factors_[i] = p_.w.scale_of(p_.w.scale_bits(static_cast<int>(first) + group));
      else
        factors_[i] = p_.w.offsets[first + group];
    }
  }
  __device__ void store_factors(StageType& stage) const {
    const int row = static_cast<int>(threadIdx.x) % kTileRows;
    if (!kOffsets && threadIdx.x >= kTileRows) return;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) (threadIdx.x < kTileRows ? stage.scales : stage.offsets)[i][row] = factors_[i];
  }

 private:
  static __device__ std::uint32_t address(const void* shared) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  }

  const Params& p_;
  int first_row_;
  float factors_[kGroups];
};

}  // namespace quench::cuda::packed_gemm_tiles
