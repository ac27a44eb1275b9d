#pragma once
// Transposed stores of float8 tiles.

#include "core/cuda/quantize/quantize_common.cuh"

namespace quench::cuda {

// One CTA per tile, 8x8 elements per thread.
inline constexpr int kCodeTile = 128;
inline constexpr int kTileParts = kCodeTile / kPiece;
inline constexpr int kCodeThreads = kTileParts * kTileParts;
// Raster order for L2: eight tiles down a column write adjacent segments of x^T rows, 1 KiB in all; the next eight read
// adjacent segments of x rows.
inline constexpr unsigned kCodeBand = 8;

struct CodeTiles {
  unsigned rows, columns;  // in tiles
  struct Position {
    std::int64_t batch, row, column;  // first element
  };
  explicit CodeTiles(const MatrixBatch& shape)
      : rows(static_cast<unsigned>((shape.rows + kCodeTile - 1) / kCodeTile)),
        columns(static_cast<unsigned>((shape.columns + kCodeTile - 1) / kCodeTile)) {}
  __device__ Position operator()(unsigned block) const {
    const unsigned batch = block / (rows * columns), tile = block - batch * (rows * columns);
    const unsigned band = tile / (kCodeBand * columns), within = tile - band * (kCodeBand * columns);
    const unsigned height = min(kCodeBand, rows - band * kCodeBand), column = within / height;
    return {batch, std::int64_t{band * kCodeBand + within - column * height} * kCodeTile,
            std::int64_t{column} * kCodeTile};
  }
};

__device__ inline void transpose_bytes(std::uint32_t (&words)[4]) {
  const std::uint32_t low01 = __byte_perm(words[0], words[1], 0x5140), high01 = __byte_perm(words[0], words[1], 0x7362),
                      low23 = __byte_perm(words[2], words[3], 0x5140), high23 = __byte_perm(words[2], words[3], 0x7362);
  words[0] = __byte_perm(low01, low23, 0x5410);
  words[1] = __byte_perm(low01, low23, 0x7632);
  words[2] = __byte_perm(high01, high23, 0x5410);
  words[3] = __byte_perm(high01, high23, 0x7632);
}

__device__ inline void transpose_codes(uint2 (&codes)[kPiece]) {
  std::uint32_t blocks[2][2][4];  // [column half][row half][row]
#pragma unroll
  for (int r = 0; r < kPiece; ++r) {
    blocks[0][r / 4][r % 4] = codes[r].x;
    blocks[1][r / 4][r % 4] = codes[r].y;
  }
#pragma unroll
  for (int c = 0; c < 2; ++c)
#pragma unroll
    for (int r = 0; r < 2; ++r) transpose_bytes(blocks[c][r]);
#pragma unroll
  for (int c = 0; c < kPiece; ++c) codes[c] = make_uint2(blocks[c / 4][0][c % 4], blocks[c / 4][1][c % 4]);
}

__device__ inline int clamped(std::int64_t rest, int most) {
  return static_cast<int>(max(std::int64_t{0}, min(rest, static_cast<std::int64_t>(most))));
}

// 8-byte units, one per column and thread. Unit u of a column is XOR-swizzled to u ^ (column / 8), against bank
// conflicts of the 16 threads that store together; 16 values of a column stay adjacent.
struct CodeUnits {
  alignas(16) uint2 of_column[kCodeTile][kTileParts];
};

// CTA collective, once: 8x8 values per thread to [columns, rows]. kWide: `transposed` and its rows are 16-byte aligned.
template <bool kWide>
__device__ inline void store_transposed(uint2 (&codes)[kPiece], CodeUnits& units, std::uint8_t* transposed,
                                        const MatrixBatch& shape, std::int64_t tile_row, std::int64_t tile_column) {
  const int part_column = static_cast<int>(threadIdx.x) % kTileParts,
            part_row = static_cast<int>(threadIdx.x) / kTileParts;
  transpose_codes(codes);
#pragma unroll
  for (int c = 0; c < kPiece; ++c) units.of_column[part_column * kPiece + c][part_row ^ part_column] = codes[c];
  __syncthreads();
  // Eight threads per column.
  constexpr int kPieces = kCodeTile / 16;
  const int piece = static_cast<int>(threadIdx.x) % kPieces;
  const std::int64_t out_row = tile_row + piece * 16;
  const int count = clamped(shape.rows - out_row, 16);
#pragma unroll
  for (int k = 0; k < kCodeTile * kPieces / kCodeThreads; ++k) {
    const int c = static_cast<int>(threadIdx.x) / kPieces + k * (kCodeThreads / kPieces), part = c / kPiece;
    uint4 pair = *reinterpret_cast<const uint4*>(&units.of_column[c][2 * (piece ^ part / 2)]);
    if (part % 2 == 1) pair = make_uint4(pair.z, pair.w, pair.x, pair.y);
    if (tile_column + c >= shape.columns || count == 0) continue;
    std::uint8_t* to = transposed + (tile_column + c) * shape.rows + out_row;
    if constexpr (kWide) {
      *reinterpret_cast<uint4*>(to) = pair;
    } else {
      store_codes(to, make_uint2(pair.x, pair.y), false, count);
      store_codes(to + kPiece, make_uint2(pair.z, pair.w), false, count - kPiece);
    }
  }
}

}  // namespace quench::cuda
