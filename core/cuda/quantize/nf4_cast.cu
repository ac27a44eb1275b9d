// e4m3 codes of NF4 matrices: half a byte read and one written per element.
//
// A block's 16 values are cast once, to a table in four registers that byte permutations index by eight 4-bit codes at
// a time; scales by column differ within a block, whose elements are cast one by one.

#include "core/cuda/quantize/code_tiles.cuh"
#include "core/cuda/quantize/nf4_scale.cuh"

namespace quench::cuda {
namespace {

constexpr int kCastThreads = 256;
constexpr int kCastsInFlight = 4;  // per thread
constexpr int kUnit = 16;          // elements per thread and access
constexpr int kLanesOfBlock = Nf4::kBlockSize / kUnit;
constexpr int kCodesOfLane = 16 / kLanesOfBlock;

// Eight codes with element 0 in the lowest bits. packed: even elements in the high halves of bytes.
__device__ std::uint32_t in_order(std::uint32_t packed) {
  return (packed & 0x0F0F0F0Fu) << 4 | (packed >> 4 & 0x0F0F0F0Fu);
}

// Table entries of eight 4-bit codes, one per byte.
__device__ uint2 look_up(const uint4& table, std::uint32_t packed) {
  const std::uint32_t codes = in_order(packed), low = codes & 0x77777777u;
  const std::uint32_t upper = (codes & 0x88888888u) >> 1 | 0x32103210u;  // entries 8 to 15
  const auto four = [&](std::uint32_t index, std::uint32_t half) {
    return __byte_perm(__byte_perm(table.x, table.y, index), __byte_perm(table.z, table.w, index), half);
  };
  return make_uint2(four(low, upper), four(low >> 16, upper >> 16));
}

// Entries code to code + 3.
__device__ std::uint32_t four_entries(const float (&values)[4], float scale, float by) {
  return encode_pair<E4m3>(values[0] * scale * by, values[1] * scale * by) |
         encode_pair<E4m3>(values[2] * scale * by, values[3] * scale * by) << 16;
}

// 16 elements per thread and step; the four threads of a block share its table.
template <bool kByRow>
__global__ __launch_bounds__(kCastThreads) void nf4_cast_kernel(const uint2* codes, Nf4Scales scales, const float* by,
                                                                uint4* out, unsigned units, unsigned units_of_row) {
  const unsigned lane = threadIdx.x % kLanesOfBlock;
  float values[kCodesOfLane];
#pragma unroll
  for (unsigned i = 0; i < kCodesOfLane; ++i)
    values[i] = Nf4::decode(static_cast<std::uint8_t>(kCodesOfLane * lane + i));
  const unsigned first = blockIdx.x * (kCastsInFlight * kCastThreads) + threadIdx.x;
  uint2 packed[kCastsInFlight] = {};
  float scale[kCastsInFlight] = {};
#pragma unroll
  for (int k = 0; k < kCastsInFlight; ++k)
    if (const unsigned u = first + k * kCastThreads; u < units) {
      packed[k] = codes[u];
      scale[k] = scales[u / kLanesOfBlock];
    }
#pragma unroll
  for (int k = 0; k < kCastsInFlight; ++k) {
    const unsigned u = first + k * kCastThreads;
    const float factor = kByRow ? by[u < units ? u / units_of_row : 0] : *by;
    const std::uint32_t own = four_entries(values, scale[k], factor);
    const auto of_lane = [&](int source) { return __shfl_sync(0xFFFFFFFFu, own, source, kLanesOfBlock); };
    const uint4 table = make_uint4(of_lane(0), of_lane(1), of_lane(2), of_lane(3));
    const uint2 low = look_up(table, packed[k].x), high = look_up(table, packed[k].y);
    if (u < units) out[u] = make_uint4(low.x, low.y, high.x, high.y);
  }
}

constexpr int kTileBlocks = kCodeTile / Nf4::kBlockSize;  // blocks of a row of a tile
static_assert(kCodeTile * kTileBlocks == kCodeThreads, "a thread makes one table");

__device__ uint4 table_of(float scale, float by) {
  std::uint32_t words[4];
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const auto code = static_cast<std::uint8_t>(4 * w);
    const float values[4] = {Nf4::decode(code), Nf4::decode(code + 1), Nf4::decode(code + 2), Nf4::decode(code + 3)};
    words[w] = four_entries(values, scale, by);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// x^T by tiles. kWide: rows of the output are 16-byte aligned.
template <bool kByColumn, bool kWide>
__global__ __launch_bounds__(kCodeThreads) void nf4_cast_transposed_kernel(const std::uint32_t* packed,
                                                                           Nf4Scales scales, const float* by,
                                                                           std::uint8_t* out, MatrixBatch shape,
                                                                           CodeTiles grid) {
  __shared__ CodeUnits units;
  __shared__ uint4 tables[kByColumn ? 1 : kCodeTile][kTileBlocks];
  __shared__ float block_scales[kByColumn ? kCodeTile : 1][kTileBlocks];
  __shared__ float values[16];
  const auto [batch, tile_row, tile_column] = grid(blockIdx.x);
  const int own_row = static_cast<int>(threadIdx.x) / kTileParts * kPiece,
            own_column = static_cast<int>(threadIdx.x) % kTileParts * kPiece;
  const std::int64_t row = tile_row + own_row, column = tile_column + own_column;
  const int rows = column < shape.columns ? clamped(shape.rows - row, kPiece) : 0;
  std::uint32_t stored[kPiece] = {};
#pragma unroll
  for (int r = 0; r < kPiece; ++r)
    if (r < rows) stored[r] = packed[((row + r) * shape.columns + column) / kPiece];
  {
    const int r = static_cast<int>(threadIdx.x) / kTileBlocks, b = static_cast<int>(threadIdx.x) % kTileBlocks;
    const std::int64_t first = tile_column + b * Nf4::kBlockSize;
    const bool inside = tile_row + r < shape.rows && first < shape.columns;
    const float scale = inside ? scales[((tile_row + r) * shape.columns + first) / Nf4::kBlockSize] : 0.0f;
    if constexpr (kByColumn)
      block_scales[r][b] = scale;
    else
      tables[r][b] = table_of(scale, *by);
    if (kByColumn && threadIdx.x < 16) values[threadIdx.x] = Nf4::decode(static_cast<std::uint8_t>(threadIdx.x));
  }
  __syncthreads();
  uint2 codes[kPiece];
  const int block = own_column / Nf4::kBlockSize;
  if constexpr (kByColumn) {
    const Piece factors = column < shape.columns ? load_piece(by + column, false) : repeated(0.0f);
#pragma unroll
    for (int r = 0; r < kPiece; ++r) {
      const std::uint32_t in_row = in_order(stored[r]);
      Piece piece;
#pragma unroll
      for (int i = 0; i < kPiece; ++i) piece[i] = values[in_row >> (4 * i) & 15u] * block_scales[own_row + r][block];
      codes[r] = encode_piece<E4m3>(piece, factors);
    }
  } else {
#pragma unroll
    for (int r = 0; r < kPiece; ++r) codes[r] = look_up(tables[own_row + r][block], stored[r]);
  }
  store_transposed<kWide>(codes, units, out, shape, tile_row, tile_column);
}

void cast_natural(const OpLaunch& launch, const Nf4CastArgs& args) {
  const std::int64_t count = args.x.shape.numel() / kUnit, of_row = args.x.shape[1] / kUnit;
  QUENCH_CHECK(count <= std::int64_t{UINT32_MAX} - kCastsInFlight * kCastThreads, "nf4_cast: {} has too many elements",
               args.out.describe());
  QUENCH_CHECK(aligned(args.x.codes.raw_data(), 8) && aligned(args.out.payload().raw_data()),
               "nf4_cast: codes do not begin at a multiple of 8 bytes, or the output of 16");
  const bool by_row = args.out.format().granularity == Granularity::row;
  constexpr std::int64_t kPerBlock = kCastsInFlight * kCastThreads;
  launch(by_row ? nf4_cast_kernel<true> : nf4_cast_kernel<false>,
         dim3(static_cast<unsigned>((count + kPerBlock - 1) / kPerBlock)), kCastThreads, 0,
         reinterpret_cast<const uint2*>(args.x.codes.raw_data()), Nf4Scales(args.x), args.out.scales().data<float>(),
         reinterpret_cast<uint4*>(args.out.payload().raw_data()), static_cast<unsigned>(count),
         static_cast<unsigned>(of_row));
}

void cast_transposed(const OpLaunch& launch, const Nf4CastArgs& args) {
  const MatrixBatch shape(args.x.shape);
  const CodeTiles grid(shape);
  std::uint8_t* out = bytes_of(args.out.payload());
  QUENCH_CHECK(aligned(args.x.codes.raw_data(), 4), "nf4_cast: codes do not begin at a multiple of 4 bytes");
  const bool wide = aligned(out) && shape.rows % 16 == 0;
  const auto run = [&](const auto& kernel) {
    launch(kernel, dim3(grid.rows * grid.columns), kCodeThreads, 0,
           reinterpret_cast<const std::uint32_t*>(args.x.codes.raw_data()), Nf4Scales(args.x),
           args.out.scales().data<float>(), out, shape, grid);
  };
  if (args.out.format().granularity == Granularity::column)
    run(wide ? nf4_cast_transposed_kernel<true, true> : nf4_cast_transposed_kernel<true, false>);
  else
    run(wide ? nf4_cast_transposed_kernel<false, true> : nf4_cast_transposed_kernel<false, false>);
}

void nf4_cast_cuda(const Nf4CastArgs& args) {
  const OpLaunch launch("nf4_cast", {&args.x.codes, &args.x.scales, &args.x.factors, &args.x.mean, &args.out.payload(),
                                     &args.out.scales()});
  args.out.format().orientation == Orientation::natural ? cast_natural(launch, args) : cast_transposed(launch, args);
}

QUENCH_CUDA_KERNEL(nf4_cast_slot, nf4_cast_cuda);

}  // namespace
}  // namespace quench::cuda
