// Casts of grouped float8 GEMM operands, with optional fused permute.

#include "core/cuda/common/group_tiles.cuh"
#include "core/cuda/quantize/code_tiles.cuh"
#include "core/cuda/quantize/float8_rounding.cuh"
#include "core/ops/experts/grouped_float8.h"

namespace quench::cuda {
namespace {

// Contiguous, or gathered by pair.
template <class T>
struct RowSource {
  const T* x;
  const std::int32_t* pairs;  // optional
  int choices;
  std::int64_t columns;

  explicit RowSource(const GroupRows& rows)
      : x(rows.x.data<T>()),
        pairs(rows.pairs.defined() ? rows.pairs.data<std::int32_t>() : nullptr),
        choices(static_cast<int>(rows.choices)),
        columns(rows.x.size(1)) {}
  // Null: zeros (padding).
  __device__ const T* operator()(std::int64_t row) const {
    if (pairs == nullptr) return x + row * columns;
    const std::int32_t pair = pairs[row];
    return pair >= 0 ? x + std::int64_t{pair / choices} * columns : nullptr;
  }
};

// `groups` past the last. Warp-uniform row.
__device__ int group_of(const std::int32_t* ends, int groups, std::int64_t row) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int first = 0; first < groups; first += 32) {
    const bool ends_later = first + lane < groups && ends[first + lane] > row;
    const unsigned found = __ballot_sync(0xFFFFFFFFu, ends_later);
    if (found != 0) return first + __ffs(static_cast<int>(found)) - 1;
  }
  return groups;
}

// Double-buffered: one barrier per CTA maximum.
template <int kThreads>
struct BlockMaxScratch {
  std::uint32_t words[2][kThreads / 32];
};
template <int kThreads>
__device__ std::uint32_t block_max(std::uint32_t word, BlockMaxScratch<kThreads>& scratch, int turn) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  word = __reduce_max_sync(0xFFFFFFFFu, word);
  if (lane == 0) scratch.words[turn][threadIdx.x / 32] = word;
  __syncthreads();
  return __reduce_max_sync(0xFFFFFFFFu, lane < kThreads / 32 ? scratch.words[turn][lane] : 0u);
}

constexpr int kRowThreads = 256;

// CTAs take runs of rows, kKept vectors of eight columns per thread; the next row loads during the cast. Column amax
// stays in registers until the group or run ends, then atomics only where it rises. Reads x once.
template <class T, int kThreads, int kKept>
__global__ __launch_bounds__(kThreads) void cast_group_rows_kernel(RowSource<T> source, const std::int32_t* ends,
                                                                   int groups, std::uint8_t* out, float* scales,
                                                                   std::uint32_t* column_amax, std::int64_t rows,
                                                                   std::int64_t run, bool power_of_two) {
  __shared__ BlockMaxScratch<kThreads> scratch;
  __shared__ alignas(16) float of_group[kThreads * kPiece];
  const int columns = static_cast<int>(source.columns);
  const auto column = [](int k) { return (static_cast<int>(threadIdx.x) + k * kThreads) * kPiece; };
  const std::int64_t first = blockIdx.x * run, last = min(first + run, rows);
  if (first >= last) return;
  const auto load = [&](PackedPiece<T>(&row)[kKept], std::int64_t r) {
    const T* from = source(r);
#pragma unroll
    for (int k = 0; k < kKept; ++k)
      row[k] = from != nullptr && column(k) < columns ? load_packed_piece(from + column(k), true) : PackedPiece<T>{};
  };
  PackedPiece<T> most[kKept] = {}, row[kKept], next[kKept];
  int group = groups;
  std::int64_t end = rows;
  if (column_amax != nullptr) {
    group = group_of(ends, groups, first);
    if (group < groups) end = ends[group];
  }
  // Shared memory, for coalesced atomics.
  const auto flush = [&] {
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      __syncthreads();
      store_piece(of_group + threadIdx.x * kPiece, unpack(most[k]), true);
      most[k] = {};
      __syncthreads();
      std::uint32_t* to = column_amax + std::int64_t{group} * columns;
      std::uint32_t held[kPiece];
      const auto at = [&](int i) { return (k * kPiece + i) * kThreads + static_cast<int>(threadIdx.x); };
#pragma unroll
      for (int i = 0; i < kPiece; ++i) held[i] = at(i) < columns ? __ldcg(to + at(i)) : ~0u;
#pragma unroll
      for (int i = 0; i < kPiece; ++i)
        if (const std::uint32_t word = __float_as_uint(of_group[i * kThreads + threadIdx.x]); word > held[i])
          atomicMax(to + at(i), word);
    }
  };
  load(next, first);
  int turn = 0;
  for (std::int64_t r = first; r < last; ++r) {
#pragma unroll
    for (int k = 0; k < kKept; ++k) row[k] = next[k];
    if (r + 1 < last) load(next, r + 1);
    if (group < groups && r >= end) {
      flush();
      while (group < groups && r >= end) end = ++group < groups ? ends[group] : rows;
    }
    PackedPiece<T> of_row = {};
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      raise(of_row, row[k]);
      if (group < groups) raise(most[k], row[k]);
    }
    const float by = float8_scale(__uint_as_float(block_max(largest(of_row), scratch, turn)), E4m3::kMax, power_of_two);
    turn ^= 1;
    if (threadIdx.x == 0) scales[r] = by;
#pragma unroll
    for (int k = 0; k < kKept; ++k)
      if (column(k) < columns)
        *reinterpret_cast<uint2*>(out + r * columns + column(k)) = encode_piece<E4m3>(unpack(row[k]), by);
  }
  if (group < groups) flush();
}

// Any length and alignment: one CTA per row, two reads, one atomic per element.
template <class T>
__global__ __launch_bounds__(kRowThreads) void cast_any_group_rows_kernel(RowSource<T> source, const std::int32_t* ends,
                                                                          int groups, std::uint8_t* out, float* scales,
                                                                          std::uint32_t* column_amax,
                                                                          bool power_of_two) {
  __shared__ BlockMaxScratch<kRowThreads> scratch;
  const std::int64_t row = blockIdx.x, columns = source.columns;
  const T* from = source(row);
  const int group = column_amax != nullptr ? group_of(ends, groups, row) : groups;
  std::uint32_t most = 0;
  for (std::int64_t c = threadIdx.x; c < columns; c += kRowThreads) {
    const std::uint32_t word = from != nullptr ? magnitude(to_float(from[c])) : 0u;
    most = max(most, word);
    if (group < groups) atomicMax(column_amax + std::int64_t{group} * columns + c, word);
  }
  const float by = float8_scale(__uint_as_float(block_max(most, scratch, 0)), E4m3::kMax, power_of_two);
  if (threadIdx.x == 0) scales[row] = by;
  for (std::int64_t c = threadIdx.x; c < columns; c += kRowThreads)
    out[row * columns + c] =
        static_cast<std::uint8_t>(encode_pair<E4m3>(from != nullptr ? to_float(from[c]) * by : 0.0f, 0.0f));
}

void group_rows_cast_cuda(const GroupRowsCastArgs& args) {
  const GroupRows& rows = args.rows;
  const OpLaunch launch("group_rows_cast",
                        {&rows.x, &rows.ends, &rows.pairs, &args.out.payload(), &args.out.scales(), &args.column_amax});
  std::uint8_t* out = bytes_of(args.out.payload());
  float* scales = args.out.scales().data<float>();
  auto* column_amax = static_cast<std::uint32_t*>(args.column_amax.raw_data());
  const auto groups = static_cast<int>(rows.ends.size(0));
  const auto* ends = rows.ends.data<std::int32_t>();
  dispatch<float, bfloat16>(rows.x.dtype(), "group_rows_cast", [&]<class T>() {
    const RowSource<T> source(rows);
    const std::int64_t count = rows.rows(), columns = source.columns;
    if (rows_are_wide<T>(source.x, columns, columns) && aligned(out, 8) && columns % kPiece == 0) {
      const auto run = [&]<int kThreads, int kKept>() {
        constexpr int kWords = kKept * PackedPiece<T>::kWords;  // per row and thread; three rows in registers
        constexpr int kBlocks = std::max(1, (kWords <= 4    ? 1536
                                             : kWords <= 8  ? 1280
                                             : kWords <= 16 ? 768
                                                            : 512) /
                                                kThreads);
        if (columns > std::int64_t{kKept} * kThreads * kPiece) return false;
        const std::int64_t blocks = std::int64_t{sm_count(launch.device())} * kBlocks;
        const std::int64_t of_block = std::max<std::int64_t>((count + blocks - 1) / blocks, 1);
        launch(cast_group_rows_kernel<T, kThreads, kKept>, static_cast<unsigned>((count + of_block - 1) / of_block),
               kThreads, 0, source, ends, groups, out, scales, column_amax, count, of_block, args.power_of_two);
        return true;
      };
      constexpr int kMost = sizeof(T) == 2 ? 8 : 4;
      if (run.template operator()<128, 1>() || run.template operator()<192, 1>() || run.template operator()<256, 1>() ||
          run.template operator()<256, 2>() || run.template operator()<256, 4>() ||
          run.template operator()<256, kMost>() || run.template operator()<512, kMost>())
        return;
    }
    launch(cast_any_group_rows_kernel<T>, static_cast<unsigned>(count), kRowThreads, 0, source, ends, groups, out,
           scales, column_amax, args.power_of_two);
  });
}

// One CTA per tile, as cast_tiles_kernel; a thread's eight rows lie in one group.
template <class T, bool kWide>
__global__ __launch_bounds__(kCodeThreads, sizeof(T) == 4 ? 2 : 4) void cast_group_columns_kernel(
    RowSource<T> source, const std::int32_t* ends, int groups, const float* scales, std::uint8_t* transposed,
    MatrixBatch shape, CodeTiles grid) {
  __shared__ CodeUnits units;
  const auto [batch, tile_row, tile_column] = grid(blockIdx.x);
  const int part_column = static_cast<int>(threadIdx.x) % kTileParts,
            part_row = static_cast<int>(threadIdx.x) / kTileParts;
  const std::int64_t row = tile_row + part_row * kPiece, column = tile_column + part_column * kPiece;
  const int columns = clamped(shape.columns - column, kPiece);
  int group = group_of(ends, groups, tile_row);
  while (group < groups && ends[group] <= row) ++group;
  PackedPiece<T> stored[kPiece] = {};
  Piece by = {};
  if (group < groups && columns > 0) {
    const int rows = clamped(shape.rows - row, kPiece);
#pragma unroll
    for (int r = 0; r < kPiece; ++r) {
      const T* from = r < rows ? source(row + r) : nullptr;
      if (from != nullptr) stored[r] = load_packed_piece(from + column, kWide, kWide ? kPiece : columns);
    }
    by = load_piece(scales + group * shape.columns + column, kWide, kWide ? kPiece : columns);
  }
  uint2 codes[kPiece];
#pragma unroll
  for (int r = 0; r < kPiece; ++r) codes[r] = encode_piece<E4m3>(unpack(stored[r]), by);
  store_transposed<kWide>(codes, units, transposed, shape, tile_row, tile_column);
}

void group_columns_cast_cuda(const GroupColumnsCastArgs& args) {
  const GroupRows& rows = args.rows;
  const OpLaunch launch("group_columns_cast", {&rows.x, &rows.ends, &rows.pairs, &args.out.codes, &args.out.scales});
  MatrixBatch shape;
  shape.rows = rows.rows();
  shape.columns = rows.x.size(1);
  const CodeTiles grid(shape);
  std::uint8_t* out = bytes_of(args.out.codes);
  const float* scales = args.out.scales.data<float>();
  dispatch<float, bfloat16>(rows.x.dtype(), "group_columns_cast", [&]<class T>() {
    const RowSource<T> source(rows);
    const bool wide =
        aligned(source.x) && aligned(out) && aligned(scales) && shape.columns % kPiece == 0 && shape.rows % 16 == 0;
    launch(wide ? cast_group_columns_kernel<T, true> : cast_group_columns_kernel<T, false>, grid.rows * grid.columns,
           kCodeThreads, 0, source, rows.ends.data<std::int32_t>(), static_cast<int>(rows.ends.size(0)), scales, out,
           shape, grid);
  });
}

QUENCH_CUDA_KERNEL(group_rows_cast_slot, group_rows_cast_cuda);
QUENCH_CUDA_KERNEL(group_columns_cast_slot, group_columns_cast_cuda);

}  // namespace
}  // namespace quench::cuda
