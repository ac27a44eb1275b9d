#pragma once
// Tile scheduler of the persistent SM90 GEMMs, from group ends on the device. Raster order: kRasterRows tile rows of a
// group, then the next column, for L2 reuse.

#include <cstdint>
#include <type_traits>

#include "core/cuda/common/group_tiles.cuh"
#include "core/number/float8.h"
#include "core/number/int8_code.h"

namespace quench::cuda {

// CTA tile; a cluster computes a column of them.
inline constexpr int kTileM = 128, kTileN = 256, kRasterRows = 12;
inline constexpr std::uint32_t kSwizzleBytes = 128;

// dense: one GEMM of K-major matrices. Symmetric: 256x256 tiles up to the diagonal (symmetric_gemm.cu).
enum class GemmKind { forward, dgrad, wgrad, dense, symmetric, symmetric_mn_major };

template <GemmKind kKind>
inline constexpr bool kIsSymmetric = kKind == GemmKind::symmetric || kKind == GemmKind::symmetric_mn_major;

// MN-major: K is not contiguous; wgmma of float8 and int8 requires K-major.
// B is one matrix for all groups, else a batch.
template <GemmKind kKind>
inline constexpr bool kHasOneB = kKind == GemmKind::wgrad || kKind == GemmKind::dense;

template <GemmKind kKind, class Operand>
struct OperandLayout {
  static constexpr bool kInt8 = std::is_same_v<Operand, Int8Code>, kBytes = kInt8 || std::is_same_v<Operand, E4m3>;
  static constexpr bool kMnMajorA = !kBytes && (kKind == GemmKind::wgrad || kKind == GemmKind::symmetric_mn_major);
  static constexpr bool kMnMajorB =
      !kBytes && kKind != GemmKind::forward && kKind != GemmKind::dense && kKind != GemmKind::symmetric;
  // Per pipeline stage and wgmma.
  static constexpr int kTileK = kBytes ? 128 : 64, kInstructionK = kTileK / 4;
  // Bytes between a stage's wgmma.
  static constexpr std::uint32_t kStepA = kMnMajorA ? 16 * kSwizzleBytes : 32,
                                 kStepB = kMnMajorB ? 16 * kSwizzleBytes : 32;
};

struct ProblemShape {
  // tiles_m: cluster tiles per group (wgrad, dense, symmetric). Symmetric: a group per matrix.
  int groups, tiles_m, tiles_n;
  std::int64_t rows, columns, k;  // C (wgrad, symmetric: per group); k: not wgrad
};

struct WorkTile {
  int group = -1;        // -1: no tile left
  std::int64_t row = 0;  // first in C (wgrad: in the group's C)
  std::int64_t end = 0;  // end of the group's rows
  std::int64_t column = 0;
  std::int64_t k_begin = 0;
  std::int64_t k_extent = 0;
};

// Warp collective: the CTA's tile for index `tile`.
template <GemmKind kKind, int kCluster>
requires(!kIsSymmetric<kKind>) __device__ WorkTile
    work_tile(const std::int32_t* ends, const ProblemShape& s, int tile, std::uint32_t rank) {
  constexpr int kRows = kTileM * kCluster, kRaster = kRasterRows / kCluster;
  WorkTile work;
  int local = 0, tiles = 0;
  std::int64_t row = 0;
  if constexpr (kKind == GemmKind::wgrad) {
    const int tiles_per_group = s.tiles_m * s.tiles_n;
    work.group = tile / tiles_per_group;
    if (work.group >= s.groups) return {};
    work.k_begin = work.group > 0 ? ends[work.group - 1] : 0;
    work.k_extent = ends[work.group] - work.k_begin;
    work.end = s.rows;
    local = tile - work.group * tiles_per_group;
    tiles = s.tiles_m;
  } else if constexpr (kKind == GemmKind::dense) {
    if (tile >= s.tiles_m * s.tiles_n) return work;
    work.group = 0;
    work.end = s.rows;
    work.k_extent = s.k;
    local = tile;
    tiles = s.tiles_m;
  } else {
    const GroupTile found = find_group_tile<kRows>(ends, s.groups, ends[s.groups - 1], tile / s.tiles_n);
    if (found.group < 0 || found.group >= s.groups) return work;
    work.group = found.group;
    work.end = found.end;
    work.k_extent = s.k;
    local = tile - static_cast<int>(found.first) * s.tiles_n;
    tiles = static_cast<int>(found.end - found.begin + kRows - 1) / kRows;
    row = found.begin;
  }
  const int band = local / (kRaster * s.tiles_n), first = band * kRaster;
  const int in_band = min(kRaster, tiles - first), rest = local - first * s.tiles_n, column = rest / in_band;
  work.row = row + std::int64_t{first + rest - column * in_band} * kRows + rank * kTileM;
  work.column = std::int64_t{column} * kTileN;
  return work;
}

// Lower triangle, row by row.
template <GemmKind kKind, int kCluster>
requires(kIsSymmetric<kKind>) __device__ WorkTile
    work_tile(const std::int32_t*, const ProblemShape& s, int tile, std::uint32_t rank) {
  static_assert(kTileM * kCluster == kTileN, "square tiles");
  WorkTile work;
  const int tiles_per_matrix = s.tiles_m * (s.tiles_m + 1) / 2, group = tile / tiles_per_matrix;
  if (group >= s.groups) return work;
  const int local = tile - group * tiles_per_matrix;
  int line = 0;  // line (line + 1) / 2 tiles precede it
  while ((line + 1) * (line + 2) / 2 <= local) ++line;
  work.group = group;
  work.end = s.rows;
  work.k_extent = s.k;
  work.row = std::int64_t{line} * kTileN + rank * kTileM;
  work.column = std::int64_t{local - line * (line + 1) / 2} * kTileN;
  return work;
}

}  // namespace quench::cuda
