#pragma once
// 128 x 4 tile layout of block scales for tensor cores (cuBLASLt block scaling factors layout, TorchAO's to_blocked).
// Scales [R,C] are zero-padded to multiples of 128 and 4; tiles follow each other along a row of tiles.

#include <cstdint>

#include "core/number/minifloat.h"

namespace quench {

inline constexpr int kScaleTileRows = 128, kScaleTileColumns = 4, kScaleTileBytes = 512;
inline constexpr int kScaleTileStripe = 32;  // rows between the scales of adjacent words

[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::int64_t scale_tiles(std::int64_t n, int per_tile) noexcept {
  return (n + per_tile - 1) / per_tile;
}

[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::int64_t blocked_scale_bytes(std::int64_t rows,
                                                                            std::int64_t columns) noexcept {
  return scale_tiles(rows, kScaleTileRows) * scale_tiles(columns, kScaleTileColumns) * kScaleTileBytes;
}

// Byte of scale (row, column) in a matrix of `columns` scales per row.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::int64_t blocked_scale_offset(std::int64_t row, std::int64_t column,
                                                                             std::int64_t columns) noexcept {
  const std::int64_t tile = row / kScaleTileRows * scale_tiles(columns, kScaleTileColumns) + column / kScaleTileColumns;
  return tile * kScaleTileBytes + row % kScaleTileStripe * 16 + row % kScaleTileRows / kScaleTileStripe * 4 +
         column % kScaleTileColumns;
}

}  // namespace quench
