// Products of bf16, with f32 sums in registers (tile_pipeline.cuh).

#include "core/cuda/experts/grouped_wgmma.h"

#include "core/cuda/tiles/bf16_sums.cuh"
#include "core/cuda/tiles/leaving_tile.cuh"
#include "core/cuda/tiles/tensor_map.h"
#include "core/cuda/tiles/tile_results.cuh"

namespace quench::cuda {
namespace {

// Results that nothing is added to leave beside the next tile's products.
template <Product kProduct, int kCluster>
__device__ void consume_leaving(const TileMemory& shared, const GroupResults& results, const std::int32_t* ends,
                                const TileShape& s, std::uint32_t rank) {
  TileRing ring;
  float sums[128];
  multiply_leaving<kProduct, kCluster>(
      shared, results, ends, s, rank,
      [&](const TileWork& work, const auto& beside, const auto& last) {
        sum_tile<kProduct, kCluster>(sums, ring, shared, work, beside, last);
      },
      [&](int i) { return make_float2(sums[2 * i], sums[2 * i + 1]); });
}

template <int kCluster, class C>
__device__ void consume_adding(const TileMemory& shared, C* c, const std::int32_t* ends, const TileShape& s, float beta,
                               std::uint32_t rank) {
  constexpr Product kProduct = Product::wgrad;
  TileRing ring;
  float sums[128];
  for (int tile = static_cast<int>(blockIdx.x) / kCluster;; tile += static_cast<int>(gridDim.x) / kCluster) {
    const TileWork work = find_work<kProduct, kCluster>(ends, s, tile, rank);
    if (work.group < 0) return;
    sum_tile<kProduct, kCluster>(sums, ring, shared, work);
    store_result<kProduct>(shared, sums, c + std::int64_t{work.group} * s.rows * s.columns, s, work, beta, NoFactors{});
  }
}

template <Product kProduct, int kCluster>
__global__ __cluster_dims__(kCluster, 1, 1)
    __launch_bounds__(kTileThreads, 1) void grouped_wgmma_kernel(const __grid_constant__ CUtensorMap left,
                                                                 const __grid_constant__ CUtensorMap right,
                                                                 const __grid_constant__ GroupResults results,
                                                                 const std::int32_t* ends, TileShape s) {
  extern __shared__ unsigned char memory[];
  run_tiles<kProduct, bfloat16, kCluster, kOutBoxesBytes>(
      memory, &left, &right, ends, s, [&](const TileMemory& shared, std::uint32_t rank) {
        consume_leaving<kProduct, kCluster>(shared, results, ends, s, rank);
      });
}

template <int kCluster, class C>
__global__ __cluster_dims__(kCluster, 1, 1)
    __launch_bounds__(kTileThreads, 1) void grouped_adding_kernel(const __grid_constant__ CUtensorMap left,
                                                                  const __grid_constant__ CUtensorMap right, C* c,
                                                                  const std::int32_t* ends, TileShape s, float beta) {
  extern __shared__ unsigned char memory[];
  run_tiles<Product::wgrad, bfloat16, kCluster, kResultBytes>(
      memory, &left, &right, ends, s,
      [&](const TileMemory& shared, std::uint32_t rank) { consume_adding<kCluster>(shared, c, ends, s, beta, rank); });
}

__global__ __launch_bounds__(256) void clear_rows_behind_kernel(uint4* c, const std::int32_t* ends, int groups,
                                                                std::int64_t pieces, std::int64_t count) {
  const std::int64_t step = std::int64_t{gridDim.x} * 256;
  for (std::int64_t i = ends[groups - 1] * pieces + std::int64_t{blockIdx.x} * 256 + threadIdx.x; i < count; i += step)
    c[i] = {};
}

bool is_wide(const Tensor& t) {
  return t.dtype() == DType::bf16 && rows_are_wide<bfloat16>(t.raw_data(), t.size(-1), t.size(-1));
}

template <Product kProduct, int kCluster>
void launch_rows(const OpLaunch& launch, const GroupedGemmArgs& args, int groups) {
  using Layout = TileLayout<kProduct, bfloat16>;
  const TileShape shape{.groups = groups,
                        .row_tiles = 0,
                        .column_tiles = tiles_of(args.c.size(1), kTileColumns),
                        .rows = args.a.size(0),
                        .columns = args.c.size(1),
                        .depth = args.a.size(1)};
  const std::int64_t tiles = most_group_tiles(shape.rows, groups, kTileRows * kCluster) * shape.column_tiles;
  const CUtensorMap left = make_tensor_map(args.a, kTileRows, Layout::kDepth);
  const CUtensorMap right = Layout::kOuterRight ? make_tensor_map(args.b, Layout::kDepth, 64)
                                                : make_tensor_map(args.b, kTileColumns / kCluster, Layout::kDepth);
  launch(grouped_wgmma_kernel<kProduct, kCluster>, tile_blocks(launch, tiles, kCluster), kTileThreads,
         tile_shared_bytes(kOutBoxesBytes), left, right, group_results(args.c), args.ends.data<std::int32_t>(), shape);
}

template <int kCluster>
void launch_wgrad(const OpLaunch& launch, const GroupedWgradArgs& args) {
  const TileShape shape{.groups = static_cast<int>(args.c.size(0)),
                        .row_tiles = tiles_of(args.c.size(1), kTileRows * kCluster),
                        .column_tiles = tiles_of(args.c.size(2), kTileColumns),
                        .rows = args.c.size(1),
                        .columns = args.c.size(2),
                        .depth = 0};
  const std::int64_t tiles = std::int64_t{shape.groups} * shape.row_tiles * shape.column_tiles;
  const CUtensorMap left = make_tensor_map(args.a, 64, 64), right = make_tensor_map(args.b, 64, 64);
  const auto* ends = args.ends.data<std::int32_t>();
  const unsigned blocks = tile_blocks(launch, tiles, kCluster);
  if (args.c.dtype() == DType::bf16 && args.beta == 0.0f)
    return launch(grouped_wgmma_kernel<Product::wgrad, kCluster>, blocks, kTileThreads,
                  tile_shared_bytes(kOutBoxesBytes), left, right, group_results(args.c), ends, shape);
  dispatch<float, bfloat16>(args.c.dtype(), "grouped_wgrad", [&]<class C>() {
    launch(grouped_adding_kernel<kCluster, C>, blocks, kTileThreads, kTileSharedBytes, left, right, args.c.data<C>(),
           ends, shape, args.beta);
  });
}

}  // namespace

void clear_rows_behind(const OpLaunch& launch, const Tensor& c, const Tensor& ends) {
  constexpr std::int64_t kPieceBytes = 16;
  const std::int64_t pieces = c.size(1) * static_cast<std::int64_t>(byte_size(c.dtype())) / kPieceBytes;
  launch(clear_rows_behind_kernel, 64, 256, 0, static_cast<uint4*>(c.raw_data()), ends.data<std::int32_t>(),
         static_cast<int>(ends.size(0)), pieces, c.size(0) * pieces);
}

bool grouped_gemm_wgmma(const OpLaunch& launch, const GroupedGemmArgs& args) {
  const std::int64_t rows = args.a.size(0);
  if (rows < kFewestTiledRows || !is_small(args.a) || !is_wide(args.a) || !is_wide(args.b) || !is_wide(args.c) ||
      !has_tile_code(launch.device()))
    return false;
  const auto groups = static_cast<int>(args.b.size(0));
  if (cluster_for(rows, groups) == 2)
    args.transpose_b ? launch_rows<Product::forward, 2>(launch, args, groups)
                     : launch_rows<Product::dgrad, 2>(launch, args, groups);
  else
    args.transpose_b ? launch_rows<Product::forward, 1>(launch, args, groups)
                     : launch_rows<Product::dgrad, 1>(launch, args, groups);
  clear_rows_behind(launch, args.c, args.ends);
  return true;
}

bool grouped_wgrad_wgmma(const OpLaunch& launch, const GroupedWgradArgs& args) {
  const std::int64_t rows = args.a.size(0);
  if (args.alignment % 16 != 0 || rows < kFewestTiledRows || !is_small(args.a) || !is_wide(args.a) ||
      !is_wide(args.b) || !has_tile_code(launch.device()))
    return false;
  tiles_of(args.c.size(1), kTileRows) > 1 ? launch_wgrad<2>(launch, args) : launch_wgrad<1>(launch, args);
  return true;
}

}  // namespace quench::cuda
