// float8 casts by tiles: the codes of x^T, which a product over x's rows reads, in one pass with those of x or alone;
// and scales by column, which a thread reads once for all its rows. The same tiles transpose codes that are there.

#include "core/cuda/quantize/float8_rounding.cuh"
#include "core/ops/transpose_codes.h"

namespace quench::cuda {
namespace {

// A block takes a tile, a thread eight rows by eight columns of it.
constexpr int kTile = 128;
constexpr int kParts = kTile / kGroup;
constexpr int kThreads = kParts * kParts;
// Blocks that run together: eight tiles below each other, so that they write neighbouring pieces of the same rows of
// x^T, 1 KiB in all, and then the next eight to the right, which read neighbouring pieces of the same rows of x.
constexpr unsigned kBand = 8;

struct TileGrid {
  unsigned rows, columns;  // tiles
  struct Position {
    std::int64_t batch, row, column;  // of the tile's first element
  };
  explicit TileGrid(const MatrixBatch& shape)
      : rows(static_cast<unsigned>((shape.rows + kTile - 1) / kTile)),
        columns(static_cast<unsigned>((shape.columns + kTile - 1) / kTile)) {}
  __device__ Position operator()(unsigned block) const {
    const unsigned batch = block / (rows * columns), tile = block - batch * (rows * columns);
    const unsigned band = tile / (kBand * columns), within = tile - band * (kBand * columns);
    const unsigned height = min(kBand, rows - band * kBand), column = within / height;
    return {batch, std::int64_t{band * kBand + within - column * height} * kTile, std::int64_t{column} * kTile};
  }
};

// Four words of four bytes, transposed.
__device__ void transpose_bytes(std::uint32_t (&words)[4]) {
  const std::uint32_t low01 = __byte_perm(words[0], words[1], 0x5140), high01 = __byte_perm(words[0], words[1], 0x7362),
                      low23 = __byte_perm(words[2], words[3], 0x5140), high23 = __byte_perm(words[2], words[3], 0x7362);
  words[0] = __byte_perm(low01, low23, 0x5410);
  words[1] = __byte_perm(low01, low23, 0x7632);
  words[2] = __byte_perm(high01, high23, 0x5410);
  words[3] = __byte_perm(high01, high23, 0x7632);
}

// Eight rows of eight codes, transposed.
__device__ void transpose_codes(uint2 (&codes)[kGroup]) {
  std::uint32_t blocks[2][2][4];  // [half of the columns][half of the rows][row]
#pragma unroll
  for (int r = 0; r < kGroup; ++r) {
    blocks[0][r / 4][r % 4] = codes[r].x;
    blocks[1][r / 4][r % 4] = codes[r].y;
  }
#pragma unroll
  for (int c = 0; c < 2; ++c)
#pragma unroll
    for (int r = 0; r < 2; ++r) transpose_bytes(blocks[c][r]);
#pragma unroll
  for (int c = 0; c < kGroup; ++c) codes[c] = make_uint2(blocks[c / 4][0][c % 4], blocks[c / 4][1][c % 4]);
}

__device__ int clamped(std::int64_t rest, int most) {
  return static_cast<int>(max(std::int64_t{0}, min(rest, static_cast<std::int64_t>(most))));
}

// Eight codes of a row, or `count` of them and zeros.
template <bool kWide>
__device__ uint2 load_codes(const std::uint8_t* from, int count) {
  if constexpr (kWide) return *reinterpret_cast<const uint2*>(from);
  std::uint32_t words[2] = {};
#pragma unroll
  for (int i = 0; i < kGroup; ++i)
    if (i < count) words[i / 4] |= std::uint32_t{from[i]} << (i % 4 * 8);
  return make_uint2(words[0], words[1]);
}

// Writes a tile of x^T. Each thread has eight rows of eight codes of the tile of x, in the order of TileGrid; all
// threads of the block call it.
template <bool kWide>
__device__ void store_transposed(uint2 (&codes)[kGroup], std::uint8_t* transposed, const MatrixBatch& shape,
                                 const TileGrid::Position& tile) {
  // Eight codes of a column, from the rows of one thread, are a unit. A column has as many units as there are banks of
  // eight bytes. Its unit u lies at u ^ (column / 8): the 16 threads that write units together differ in column / 8,
  // and 16 codes of a column stay neighbours, in either order.
  __shared__ alignas(16) uint2 units[kTile][kParts];
  const int part_column = static_cast<int>(threadIdx.x) % kParts, part_row = static_cast<int>(threadIdx.x) / kParts;
  transpose_codes(codes);
#pragma unroll
  for (int c = 0; c < kGroup; ++c) units[part_column * kGroup + c][part_row ^ part_column] = codes[c];
  __syncthreads();
  // Eight threads write the codes of a column, 16 each.
  constexpr int kPieces = kTile / 16;
  const int piece = static_cast<int>(threadIdx.x) % kPieces;
  const std::int64_t out_row = tile.row + piece * 16;
  const int count = clamped(shape.rows - out_row, 16);
#pragma unroll
  for (int k = 0; k < kTile * kPieces / kThreads; ++k) {
    const int c = static_cast<int>(threadIdx.x) / kPieces + k * (kThreads / kPieces), part = c / kGroup;
    uint4 pair = *reinterpret_cast<const uint4*>(&units[c][2 * (piece ^ part / 2)]);
    if (part % 2 == 1) pair = make_uint4(pair.z, pair.w, pair.x, pair.y);
    if (tile.column + c >= shape.columns || count == 0) continue;
    std::uint8_t* to = transposed + (tile.batch * shape.columns + tile.column + c) * shape.rows + out_row;
    if constexpr (kWide) {
      *reinterpret_cast<uint4*>(to) = pair;
    } else {
      store_codes(to, make_uint2(pair.x, pair.y), false, count);
      store_codes(to + kGroup, make_uint2(pair.z, pair.w), false, count - kGroup);
    }
  }
}

// Blocks whose registers a multiprocessor holds; draws take some.
template <class T, class Rounding, bool kWide>
inline constexpr int kBlocks = sizeof(T) == 4                              ? 2
                               : std::is_same_v<Rounding, NearestRounding> ? 4
                               : kWide                                     ? 3
                                                                           : 2;

// Reads x once and the scales a few times from the caches; writes a byte an element to each of `natural` and
// `transposed` that is not null. kWide: the rows of x and of both results begin at multiples of 16, 8 and 16 bytes and
// are of whole pieces of 8, 8 and 16 elements, and the scales of a column begin at a multiple of 16 bytes.
template <class T, class Element, class Rounding, bool kWide>
__global__ __launch_bounds__(kThreads, kBlocks<T, Rounding, kWide>) void cast_tiles_kernel(
    const T* x, std::uint8_t* natural, std::uint8_t* transposed, const float* scale, bool by_column, MatrixBatch shape,
    TileGrid grid, Rounding rounding) {
  const auto [batch, tile_row, tile_column] = grid(blockIdx.x);
  const int part_column = static_cast<int>(threadIdx.x) % kParts, part_row = static_cast<int>(threadIdx.x) / kParts;
  const std::int64_t row = tile_row + part_row * kGroup, column = tile_column + part_column * kGroup,
                     first = (batch * shape.rows + row) * shape.columns + column;
  const int rows = clamped(shape.rows - row, kGroup), columns = clamped(shape.columns - column, kGroup);
  const bool inside = rows > 0 && columns > 0;
  Stored<T> stored[kGroup] = {};
  Group by = {};
  if (inside) {
#pragma unroll
    for (int r = 0; r < kGroup; ++r)
      if (r < rows) stored[r] = load_stored(x + first + r * shape.columns, kWide, kWide ? kGroup : columns);
    by = by_column ? load_group(scale + batch * shape.columns + column, kWide, kWide ? kGroup : columns)
                   : repeated(*scale);
  }
  uint2 codes[kGroup];
#pragma unroll
  for (int r = 0; r < kGroup; ++r)
    codes[r] = rounding.template encode<Element>(widened(stored[r]), by, batch * shape.rows + row + r, column);
  if (natural != nullptr && inside) {
#pragma unroll
    for (int r = 0; r < kGroup; ++r)
      if (r < rows) store_codes(natural + first + r * shape.columns, codes[r], kWide, kWide ? kGroup : columns);
  }
  if (transposed == nullptr) return;
  store_transposed<kWide>(codes, transposed, shape, {batch, tile_row, tile_column});
}

// Reads and writes each code once, eight bytes of a row and sixteen of a column at a time where kWide.
template <bool kWide>
__global__ __launch_bounds__(kThreads) void transpose_codes_kernel(const std::uint8_t* from, std::uint8_t* to,
                                                                   MatrixBatch shape, TileGrid grid) {
  const TileGrid::Position tile = grid(blockIdx.x);
  const std::int64_t row = tile.row + static_cast<int>(threadIdx.x) / kParts * kGroup,
                     column = tile.column + static_cast<int>(threadIdx.x) % kParts * kGroup;
  const int rows = clamped(shape.rows - row, kGroup), columns = clamped(shape.columns - column, kGroup);
  uint2 codes[kGroup] = {};
  if (columns > 0) {
#pragma unroll
    for (int r = 0; r < kGroup; ++r)
      if (r < rows) codes[r] = load_codes<kWide>(from + (row + r) * shape.columns + column, columns);
  }
  store_transposed<kWide>(codes, to, shape, tile);
}

void transpose_codes_cuda(const TransposeCodesArgs& args) {
  const OpLaunch launch("transpose_codes", {&args.from, &args.to});
  const MatrixBatch shape(args.from.shape());
  const TileGrid grid(shape);
  const std::uint8_t* from = bytes_of(args.from);
  std::uint8_t* to = bytes_of(args.to);
  const bool wide = aligned(from, 8) && aligned(to) && shape.columns % kGroup == 0 && shape.rows % 16 == 0;
  launch(wide ? transpose_codes_kernel<true> : transpose_codes_kernel<false>, dim3(grid.rows * grid.columns), kThreads,
         0, from, to, shape, grid);
}

QUENCH_CUDA_KERNEL(transpose_codes_slot, transpose_codes_cuda);

}  // namespace

void cast_float8_tiles(const Float8CastArgs& args) {
  const QuantTensor& any = args.out.defined() ? args.out : args.transposed;
  const OpLaunch launch("float8_cast", {&args.x, &args.out.payload(), &args.transposed.payload(), &any.scales()});
  const MatrixBatch shape(args.x.shape());
  const TileGrid grid(shape);
  const auto codes = [](const QuantTensor& q) { return q.defined() ? bytes_of(q.payload()) : nullptr; };
  std::uint8_t *natural = codes(args.out), *transposed = codes(args.transposed);
  const float* scale = any.scales().data<float>();
  const bool by_column = any.format().granularity == Granularity::column;
  dispatch_quantize<E4m3, E5m2>("float8_cast", args.x.dtype(), any.format().element, [&]<class T, class Element>() {
    const T* x = args.x.data<T>();
    const bool wide = aligned(x) && aligned(natural, 8) && aligned(transposed) && (!by_column || aligned(scale)) &&
                      shape.columns % kGroup == 0 && (transposed == nullptr || shape.rows % 16 == 0);
    with_rounding(args.rounding, [&]<class Rounding>(const Rounding& rounding) {
      launch(wide ? cast_tiles_kernel<T, Element, Rounding, true> : cast_tiles_kernel<T, Element, Rounding, false>,
             dim3(static_cast<unsigned>(shape.batch) * grid.rows * grid.columns), kThreads, 0, x, natural, transposed,
             scale, by_column, shape, grid, rounding);
    });
  });
}

}  // namespace quench::cuda
