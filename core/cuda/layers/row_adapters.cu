// Updates of many LoRA adapters: hidden values A x in f32, then y += B hidden. Memory bound: A and B are read once for
// a tile of rows with the same adapter.

#include "core/ops/adapters/row_adapters.h"

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pack.cuh"
#include "core/cuda/common/pdl.cuh"
#include "core/cuda/common/reduce.cuh"
#include "core/cuda/common/rows.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kTileRows = 4;
// One row to a CTA up to this many rows: more CTAs. A row's bits are those of a tile.
constexpr std::int64_t kFewRows = 64;

template <class T>
struct PartView {
  const T* b;  // [adapters,ranks,columns]
  T* y;
  std::int64_t columns;
  int ranks, rank_begin;
  unsigned first_block;  // place in the grid's y
};

template <class T>
struct RowAdaptersView {
  const T* x;
  const T* a;                // [adapters,ranks,width]
  const std::int32_t* rows;  // adapter by row
  float* hidden;             // [count,ranks]
  std::int64_t x_stride, y_stride, count, width;
  int ranks;
  int part_count;
  PartView<T> parts[kMostRowAdapterParts];
};

// Adapters of a tile; false: none.
template <int kRows, class T>
__device__ bool read_tile(int (&adapter)[kRows], std::int64_t first, const RowAdaptersView<T>& args) {
  bool any = false;
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    adapter[j] = first + j < args.count ? args.rows[first + j] : -1;
    any = any || adapter[j] >= 0;
  }
  return any;
}

// Grid: tile, rank. N elements at a time.
template <int kRows, int N, class T>
__global__ __launch_bounds__(kThreads) void row_hidden_kernel(const __grid_constant__ RowAdaptersView<T> args) {
  __shared__ float scratch[kThreads / 32][kRows];
  pdl_sync();
  const std::int64_t first = std::int64_t{blockIdx.x} * kRows;
  const int rank = static_cast<int>(blockIdx.y);
  int adapter[kRows];
  if (!read_tile(adapter, first, args)) return;
  float sum[kRows] = {};
#pragma unroll(kRows == 1 ? 4 : 1)
  for (std::int64_t i = threadIdx.x; i < args.width / N; i += kThreads) {
    Vector<float, N> a{};
    int held = -1;
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      if (adapter[j] < 0) continue;
      if (adapter[j] != held) {
        held = adapter[j];
        a = unpack(load_packed<T, N>(args.a + (std::int64_t{held} * args.ranks + rank) * args.width, i));
      }
      const Vector<float, N> x = unpack(load_packed<T, N>(args.x + (first + j) * args.x_stride, i));
#pragma unroll
      for (int e = 0; e < N; ++e) sum[j] = fmaf(a[e], x[e], sum[j]);
    }
  }
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    sum[j] = warp_reduce(sum[j], Sum());
    if (lane == 0) scratch[warp][j] = sum[j];
  }
  __syncthreads();
  const int row = static_cast<int>(threadIdx.x);
  if (row >= kRows || first + row >= args.count) return;
  float total = 0;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) total += scratch[w][row];
  args.hidden[(first + row) * args.ranks + rank] = total;
}

// Grid: tile, columns of all parts. N columns a thread.
template <int kRows, int N, class T>
__global__ __launch_bounds__(kThreads) void row_update_kernel(const __grid_constant__ RowAdaptersView<T> args) {
  pdl_sync();
  const std::int64_t first = std::int64_t{blockIdx.x} * kRows;
  int number = 0;
  while (number + 1 < args.part_count && blockIdx.y >= args.parts[number + 1].first_block) ++number;
  const PartView<T>& part = args.parts[number];
  const std::int64_t i = std::int64_t{blockIdx.y - part.first_block} * kThreads + threadIdx.x;
  int adapter[kRows];
  if (!read_tile(adapter, first, args) || i >= part.columns / N) return;
  const float* hidden = args.hidden + first * args.ranks + part.rank_begin;
  Vector<float, N> sum[kRows] = {};
#pragma unroll 4
  for (int rank = 0; rank < part.ranks; ++rank) {
    Vector<float, N> b{};
    int held = -1;
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      if (adapter[j] < 0) continue;
      if (adapter[j] != held) {
        held = adapter[j];
        b = unpack(load_packed<T, N>(part.b + (std::int64_t{held} * part.ranks + rank) * part.columns, i));
      }
      const float value = hidden[j * args.ranks + rank];
#pragma unroll
      for (int e = 0; e < N; ++e) sum[j][e] = fmaf(value, b[e], sum[j][e]);
    }
  }
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    if (adapter[j] < 0) continue;
    T* y = part.y + (first + j) * args.y_stride;
    Vector<float, N> value = unpack(load_packed<T, N>(y, i));
#pragma unroll
    for (int e = 0; e < N; ++e) value[e] += sum[j][e];
    store_values(y, i, value);
  }
}

template <int kRows, class T>
void launch_tiles(const OpLaunch& launch, RowAdaptersView<T> view) {
  constexpr int kWide = kVectorWidth<T>;
  const bool wide_x = rows_are_wide<T>(view.x, view.x_stride, view.width) && rows_are_wide<T>(view.a, 0, view.width);
  bool wide_y = true;
  for (int p = 0; p < view.part_count; ++p)
    wide_y = wide_y && rows_are_wide<T>(view.parts[p].y, view.y_stride, view.parts[p].columns) &&
             rows_are_wide<T>(view.parts[p].b, 0, view.parts[p].columns);
  std::int64_t blocks = 0;
  for (int p = 0; p < view.part_count; ++p) {
    view.parts[p].first_block = static_cast<unsigned>(blocks);
    blocks += (view.parts[p].columns / (wide_y ? kWide : 1) + kThreads - 1) / kThreads;
  }
  const auto tiles = static_cast<unsigned>((view.count + kRows - 1) / kRows);
  QUENCH_CHECK_AS(ErrorCode::unsupported, view.ranks < 65536 && blocks < 65536,
                  "row_adapters: rank {} and {} blocks of columns, fewer than 65536 are supported", view.ranks, blocks);
  launch.early(view.count, wide_x ? row_hidden_kernel<kRows, kWide, T> : row_hidden_kernel<kRows, 1, T>,
               dim3(tiles, static_cast<unsigned>(view.ranks)), kThreads, 0, view);
  launch.early(view.count, wide_y ? row_update_kernel<kRows, kWide, T> : row_update_kernel<kRows, 1, T>,
               dim3(tiles, static_cast<unsigned>(blocks)), kThreads, 0, view);
}

void row_adapters(const RowAdaptersArgs& args) {
  const OpLaunch launch("row_adapters", {&args.x, &args.a, &args.rows, &args.y});
  const std::int64_t count = args.x.size(0), ranks = args.a.size(1);
  check_row_count("row_adapters", count);
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor hidden = Tensor::empty({count, ranks}, DType::f32, args.x.device());
  dispatch<float, bfloat16>(args.x.dtype(), "row_adapters", [&]<class T>() {
    RowAdaptersView<T> view{.x = args.x.data<T>(),
                            .a = args.a.data<T>(),
                            .rows = args.rows.data<std::int32_t>(),
                            .hidden = hidden.data<float>(),
                            .x_stride = args.x.stride(0),
                            .y_stride = args.y.stride(0),
                            .count = count,
                            .width = args.x.size(1),
                            .ranks = static_cast<int>(ranks),
                            .part_count = 0,
                            .parts = {}};
    for (const RowAdapterPart& part : args.parts)
      view.parts[view.part_count++] = {.b = part.b.data<T>(),
                                       .y = args.y.data<T>() + part.column,
                                       .columns = part.b.size(2),
                                       .ranks = static_cast<int>(part.b.size(1)),
                                       .rank_begin = static_cast<int>(part.rank_begin),
                                       .first_block = 0};
    count <= kFewRows ? launch_tiles<1>(launch, view) : launch_tiles<kTileRows>(launch, view);
  });
}

QUENCH_CUDA_KERNEL(row_adapters_slot, row_adapters);

}  // namespace
}  // namespace quench::cuda
