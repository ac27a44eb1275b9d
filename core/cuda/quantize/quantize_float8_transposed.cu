// Tiled float8 casts: columnwise (transposed) output, optionally rowwise in the same pass; columnwise scales.

#include "core/cuda/quantize/code_tiles.cuh"
#include "core/cuda/quantize/float8_rounding.cuh"

namespace quench::cuda {
namespace {

// By registers; stochastic rounding takes more.
template <class T, class Rounding, bool kWide>
inline constexpr int kBlocks = sizeof(T) == 4                              ? 2
                               : std::is_same_v<Rounding, NearestRounding> ? 4
                               : kWide                                     ? 3
                                                                           : 2;

// Null outputs are skipped. kWide: rows of x and of the outputs are aligned to 16, 8 and 16 bytes and whole vectors of
// 8, 8 and 16 elements; columnwise scales are 16-byte aligned.
template <class T, class Element, class Rounding, bool kWide>
__global__ __launch_bounds__(kCodeThreads, kBlocks<T, Rounding, kWide>) void cast_tiles_kernel(
    const T* x, std::uint8_t* natural, std::uint8_t* transposed, const float* scale, bool by_column, MatrixBatch shape,
    CodeTiles grid, Rounding rounding) {
  __shared__ CodeUnits units;
  const auto [batch, tile_row, tile_column] = grid(blockIdx.x);
  const int part_column = static_cast<int>(threadIdx.x) % kTileParts,
            part_row = static_cast<int>(threadIdx.x) / kTileParts;
  const std::int64_t row = tile_row + part_row * kPiece, column = tile_column + part_column * kPiece,
                     first = (batch * shape.rows + row) * shape.columns + column;
  const int rows = clamped(shape.rows - row, kPiece), columns = clamped(shape.columns - column, kPiece);
  const bool inside = rows > 0 && columns > 0;
  PackedPiece<T> stored[kPiece] = {};
  Piece by = {};
  if (inside) {
#pragma unroll
    for (int r = 0; r < kPiece; ++r)
      if (r < rows) stored[r] = load_packed_piece(x + first + r * shape.columns, kWide, kWide ? kPiece : columns);
    by = by_column ? load_piece(scale + batch * shape.columns + column, kWide, kWide ? kPiece : columns)
                   : repeated(*scale);
    if constexpr (kIsInt8<Element>) {
#pragma unroll
      for (int i = 0; i < kPiece; ++i) by[i] = encode_factor<Element>(by[i]);
    }
  }
  uint2 codes[kPiece];
#pragma unroll
  for (int r = 0; r < kPiece; ++r)
    codes[r] = rounding.template encode<Element>(unpack(stored[r]), by, batch * shape.rows + row + r, column);
  if (natural != nullptr && inside) {
#pragma unroll
    for (int r = 0; r < kPiece; ++r)
      if (r < rows) store_codes(natural + first + r * shape.columns, codes[r], kWide, kWide ? kPiece : columns);
  }
  if (transposed == nullptr) return;
  store_transposed<kWide>(codes, units, transposed + batch * shape.columns * shape.rows, shape, tile_row, tile_column);
}

}  // namespace

void cast_float8_tiles(const Float8CastArgs& args) {
  const QuantTensor& any = args.out.defined() ? args.out : args.transposed;
  const OpLaunch launch("float8_cast", {&args.x, &args.out.payload(), &args.transposed.payload(), &any.scales()});
  const MatrixBatch shape(args.x.shape());
  const CodeTiles grid(shape);
  const auto codes = [](const QuantTensor& q) { return q.defined() ? bytes_of(q.payload()) : nullptr; };
  std::uint8_t *natural = codes(args.out), *transposed = codes(args.transposed);
  const float* scale = any.scales().data<float>();
  const bool by_column = any.format().granularity == Granularity::column;
  dispatch_quantize<E4m3, E5m2, Int8Code>(
      "float8_cast", args.x.dtype(), any.format().element, [&]<class T, class Element>() {
        const T* x = args.x.data<T>();
        const bool wide = aligned(x) && aligned(natural, 8) && aligned(transposed) && (!by_column || aligned(scale)) &&
                          shape.columns % kPiece == 0 && (transposed == nullptr || shape.rows % 16 == 0);
        with_rounding(args.rounding, [&]<class Rounding>(const Rounding& rounding) {
          launch(wide ? cast_tiles_kernel<T, Element, Rounding, true> : cast_tiles_kernel<T, Element, Rounding, false>,
                 dim3(static_cast<unsigned>(shape.batch) * grid.rows * grid.columns), kCodeThreads, 0, x, natural,
                 transposed, scale, by_column, shape, grid, rounding);
        });
      });
}

}  // namespace quench::cuda
