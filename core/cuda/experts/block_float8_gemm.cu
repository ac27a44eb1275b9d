// Products of blockwise float8 operands (grouped_pipeline.cuh).
//
// A stage holds one block of the contraction. The tensor cores sum its products, which are then scaled and added to
// sums in f32; registers hold those of 64 x 256 results and half as many of the tensor core's, so halves of the columns
// take turns: 128 columns, one square of the weights. While one warp group adds, the other one's products run.

#include "core/cuda/experts/grouped_pipeline.cuh"
#include "core/cuda/experts/tensor_map.h"
#include "core/ops/experts/block_float8_gemm.h"

namespace quench::cuda {
namespace {

struct BlockScales {
  const float* rows;       // [blocks,R], or [blocks,M] of wgrad
  const float* columns;    // squares [E,float8_blocks(N),blocks], or [blocks,N] of wgrad
  std::int64_t row_lines;  // R or M
  std::int64_t squares;    // float8_blocks(N); without meaning for wgrad
  std::int64_t blocks;     // of the contraction
};

// What a half of the columns has for scales: one for all of them, or for each column its own.
template <Product kProduct>
struct ColumnScales {
  static constexpr bool kEach = kProduct == Product::wgrad;
  float of[kEach ? 32 : 1];

  __device__ void load(const BlockScales& scales, const TileShape& s, const TileWork& work, std::int64_t block,
                       int side) {
    const std::int64_t first = work.column + 128 * side;
    if constexpr (kEach) {
      const int lane = static_cast<int>(threadIdx.x) % 32;
      const float* from = scales.columns + block * s.columns;
#pragma unroll
      for (int j = 0; j < 16; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const std::int64_t column = first + 8 * j + lane % 4 * 2 + i;
          of[2 * j + i] = column < s.columns ? from[column] : 0.0f;
        }
    } else {
      of[0] = first < s.columns ? scales.columns[(work.group * scales.squares + first / 128) * scales.blocks + block]
                                : 0.0f;
    }
  }
  __device__ float at(int i) const {
    return of[kEach ? i : 0];
  }
};

template <Product kProduct, int kCluster>
__device__ void sum_blocks(const TileMemory& shared, const BlockScales& scales, const TileShape& s,
                           const TileWork& work, TileRing& ring, float (&sums)[128]) {
  using Layout = TileLayout<kProduct, E4m3>;
  static_assert(Layout::kDepth == kFloat8Block && kTileColumns == 2 * kFloat8Block);
  const int half = static_cast<int>(threadIdx.x) / 128 - 1, lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t row = work.row + 16 * (static_cast<int>(threadIdx.x) / 32 - 4) + lane / 4;
#pragma unroll
  for (int i = 0; i < 128; ++i) sums[i] = 0.0f;
  for (std::int64_t k = 0; k < work.depth; k += Layout::kDepth) {
    const std::int64_t block = (work.begin + k) / kFloat8Block;
    float of_rows[2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      of_rows[i] = row + 8 * i < work.end ? scales.rows[block * scales.row_lines + row + 8 * i] : 0.0f;
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      ColumnScales<kProduct> of_columns;
      of_columns.load(scales, s, work, block, side);
      if (side == 0) wait_barrier(shared.full(ring.stage), ring.parity);
      const std::uint32_t a = shared.left(ring.stage) + static_cast<std::uint32_t>(half) * kBoxBytes;
      const std::uint32_t b = shared.right(ring.stage) + static_cast<std::uint32_t>(side) * (kRightBytes / 2);
      float part[64];
      begin_products();
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t at = static_cast<std::uint32_t>(i) * Layout::kLeftStep;
        multiply_e4m3(part, matrix_descriptor(a + at, 0), matrix_descriptor(b + at, 0), i > 0);
      }
      commit_products();
      wait_products<0>();
      settle(part);
#pragma unroll
      for (int j = 0; j < 16; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sums[64 * side + 4 * j + i] =
              fmaf(part[4 * j + i], of_rows[i / 2] * of_columns.at(2 * j + i % 2), sums[64 * side + 4 * j + i]);
    }
    release_stage<kCluster>(shared, ring.stage);
    ring.advance();
  }
}

template <Product kProduct, int kCluster, class C>
__global__ __cluster_dims__(kCluster, 1, 1)
    __launch_bounds__(kTileThreads, 1) void block_float8_kernel(const __grid_constant__ CUtensorMap left,
                                                                const __grid_constant__ CUtensorMap right, C* c,
                                                                BlockScales scales, const std::int32_t* ends,
                                                                TileShape s, float beta) {
  extern __shared__ unsigned char memory[];
  constexpr bool kWgrad = kProduct == Product::wgrad;
  run_tiles<kProduct, E4m3, kCluster>(
      memory, &left, &right, ends, s, [&](const TileMemory& shared, std::uint32_t rank) {
        TileRing ring;
        float sums[128];
        for (int tile = static_cast<int>(blockIdx.x) / kCluster;; tile += static_cast<int>(gridDim.x) / kCluster) {
          const TileWork work = find_work<kProduct, kCluster>(ends, s, tile, rank);
          if (work.group < 0) return;
          sum_blocks<kProduct, kCluster>(shared, scales, s, work, ring, sums);
          C* out = kWgrad ? c + std::int64_t{work.group} * s.rows * s.columns : c;
          store_tile<kWgrad>(shared, sums, out, s, work, beta, NoFactors{});
        }
      });
}

// Eight results leave at a time; operands are whole blocks.
void check_product(std::string_view op, Device device, const Tensor& c, std::initializer_list<const Tensor*> codes) {
  QUENCH_CHECK_AS(ErrorCode::unsupported, has_tile_code(device),
                  "{}: blockwise float8 products need compute capability 9.0; {} has {}; recipe.emulate computes them "
                  "in f32",
                  op, device.to_string(), compute_capability(device));
  for (const Tensor* t : codes)
    QUENCH_CHECK_AS(ErrorCode::unsupported, is_small(*t), "{}: {} has too many rows", op, t->describe());
  QUENCH_CHECK_AS(ErrorCode::unsupported, c.size(-1) % 8 == 0, "{}: {} columns of c are not a multiple of 8", op,
                  c.size(-1));
}

template <class Body>
void with_cluster(int cluster, const Body& body) {
  cluster == 2 ? body.template operator()<2>() : body.template operator()<1>();
}

void block_float8_gemm_cuda(const BlockFloat8GemmArgs& args) {
  using Layout = TileLayout<Product::forward, E4m3>;
  const Tensor &a = args.a.codes, &b = args.b.codes;
  const OpLaunch launch("block_float8_gemm", {&a, &b, &args.a.scales, &args.b.scales, &args.c, &args.ends});
  check_product("block_float8_gemm", launch.device(), args.c, {&a, &b});
  const auto groups = static_cast<int>(args.ends.size(0));
  const TileShape shape{.groups = groups,
                        .row_tiles = 0,
                        .column_tiles = tiles_of(args.c.size(1), kTileColumns),
                        .rows = a.size(0),
                        .columns = args.c.size(1),
                        .depth = a.size(1)};
  const BlockScales scales{.rows = args.a.scales.data<float>(),
                           .columns = args.b.scales.data<float>(),
                           .row_lines = a.size(0),
                           .squares = args.b.scales.size(1),
                           .blocks = args.b.scales.size(2)};
  dispatch<float, bfloat16>(args.c.dtype(), "block_float8_gemm", [&]<class C>() {
    with_cluster(cluster_for(shape.rows, groups), [&]<int kCluster>() {
      const std::int64_t tiles = most_group_tiles(shape.rows, groups, kTileRows * kCluster) * shape.column_tiles;
      launch(block_float8_kernel<Product::forward, kCluster, C>, tile_blocks(launch, tiles, kCluster), kTileThreads,
             kTileSharedBytes, make_tensor_map(a, kTileRows, Layout::kDepth),
             make_tensor_map(b, kTileColumns / kCluster, Layout::kDepth), args.c.data<C>(), scales,
             args.ends.data<std::int32_t>(), shape, 0.0f);
    });
  });
  clear_rows_behind(launch, args.c, args.ends);
}

void block_float8_wgrad_cuda(const BlockFloat8WgradArgs& args) {
  using Layout = TileLayout<Product::wgrad, E4m3>;
  const Tensor &a = args.a.codes, &b = args.b.codes;
  const OpLaunch launch("block_float8_wgrad", {&a, &b, &args.a.scales, &args.b.scales, &args.c, &args.ends});
  if (a.size(1) == 0) {  // no rows: a tensor map would have no bytes
    QUENCH_CHECK_AS(ErrorCode::unsupported, args.beta == 0.0f || args.beta == 1.0f,
                    "block_float8_wgrad: no rows with beta {}", args.beta);
    if (args.beta == 0.0f) launch.check(cudaMemsetAsync(args.c.raw_data(), 0, args.c.nbytes(), launch.stream()));
    return;
  }
  check_product("block_float8_wgrad", launch.device(), args.c, {&a, &b});
  const BlockScales scales{.rows = args.a.scales.data<float>(),
                           .columns = args.b.scales.data<float>(),
                           .row_lines = a.size(0),
                           .squares = 0,
                           .blocks = args.a.scales.size(0)};
  dispatch<float, bfloat16>(args.c.dtype(), "block_float8_wgrad", [&]<class C>() {
    with_cluster(a.size(0) > kTileRows ? 2 : 1, [&]<int kCluster>() {
      const TileShape shape{.groups = static_cast<int>(args.c.size(0)),
                            .row_tiles = tiles_of(a.size(0), kTileRows * kCluster),
                            .column_tiles = tiles_of(b.size(0), kTileColumns),
                            .rows = a.size(0),
                            .columns = b.size(0),
                            .depth = 0};
      const std::int64_t tiles = std::int64_t{shape.groups} * shape.row_tiles * shape.column_tiles;
      launch(block_float8_kernel<Product::wgrad, kCluster, C>, tile_blocks(launch, tiles, kCluster), kTileThreads,
             kTileSharedBytes, make_tensor_map(a, kTileRows, Layout::kDepth),
             make_tensor_map(b, kTileColumns / kCluster, Layout::kDepth), args.c.data<C>(), scales,
             args.ends.data<std::int32_t>(), shape, args.beta);
    });
  });
}

QUENCH_CUDA_KERNEL(block_float8_gemm_slot, block_float8_gemm_cuda);
QUENCH_CUDA_KERNEL(block_float8_wgrad_slot, block_float8_wgrad_cuda);

}  // namespace
}  // namespace quench::cuda
