// Products of blockwise float8 operands (tile_pipeline.cuh).
//
// A stage holds one block of the contraction. The tensor cores sum its products, which are then scaled and added to
// sums in f32; registers hold those of 64 x 256 results and half as many of the tensor core's, so halves of the columns
// take turns: 128 columns, one square of the weights. While one warp group adds, the other one's products run.

#include "core/cuda/tiles/tensor_map.h"
#include "core/cuda/tiles/tile_results.cuh"
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

// Scales of a tile's columns under one block. Squares: one for each half of the columns. Lines: one for each column, in
// shared memory, where every warp has a copy of its own; a lane fetches eight of them a block ahead.
template <bool kEach>
class ColumnScales {
 public:
  __device__ ColumnScales(const TileMemory& shared, const BlockScales& scales, const TileShape& s, const TileWork& work)
      : copy_(shared.factors + (threadIdx.x / 32 - 4) * kFactorBytes), blocks_(scales.blocks) {
    if constexpr (kEach) {
      const std::int64_t column = work.column + 8 * (threadIdx.x % 32);
      from_ = scales.columns + column;
      step_ = s.columns;
      inside_ = column < s.columns;  // a multiple of 8, as the columns are
    } else {
      from_ = scales.columns + (work.group * scales.squares + work.column / kFloat8Block) * scales.blocks;
      inside_ = work.column + kFloat8Block < s.columns;  // of the second half
    }
  }
  __device__ void fetch(std::int64_t block) {
    if (block >= blocks_) return;
    if constexpr (kEach) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        next_[i] = inside_ ? reinterpret_cast<const float4*>(from_ + block * step_)[i] : make_float4(0, 0, 0, 0);
    } else {
      next_[0].x = from_[block];
      next_[0].y = inside_ ? from_[blocks_ + block] : 0.0f;
    }
  }
  // What was fetched is in use from now on.
  __device__ void place() {
    if constexpr (kEach) {
      __syncwarp();
      const std::uint32_t to = copy_ + 32 * (threadIdx.x % 32);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to + 16 * i), "f"(next_[i].x), "f"(next_[i].y),
                     "f"(next_[i].z), "f"(next_[i].w)
                     : "memory");
      __syncwarp();
    } else {
      halves_ = make_float2(next_[0].x, next_[0].y);
    }
  }
  // Of a thread's two columns of eight.
  __device__ float2 of(int side, int eight) const {
    if constexpr (kEach) {
      float2 result;
      asm volatile(
          "ld.shared.v2.f32 {%0, %1}, [%2];"
          : "=f"(result.x), "=f"(result.y)
          : "r"(copy_ + static_cast<std::uint32_t>(side * kFloat8Block + 8 * eight) * 4 + threadIdx.x % 4 * 8));
      return result;
    } else {
      const float scale = side == 0 ? halves_.x : halves_.y;
      return make_float2(scale, scale);
    }
  }

 private:
  std::uint32_t copy_;
  std::int64_t blocks_, step_ = 0;
  const float* from_;
  bool inside_;
  float4 next_[kEach ? 2 : 1];
  float2 halves_;
};

template <Product kProduct, int kCluster>
__device__ void sum_blocks(const TileMemory& shared, const BlockScales& scales, const TileShape& s,
                           const TileWork& work, TileRing& ring, float (&sums)[128]) {
  using Layout = TileLayout<kProduct, E4m3>;
  static_assert(Layout::kDepth == kFloat8Block && kTileColumns == 2 * kFloat8Block);
  const int half = static_cast<int>(threadIdx.x) / 128 - 1, lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t row = work.row + 16 * (static_cast<int>(threadIdx.x) / 32 - 4) + lane / 4;
  const float* row_scales = scales.rows + row;
  const bool inside[2]{row < work.end, row + 8 < work.end};
  ColumnScales<kProduct == Product::wgrad> of_columns(shared, scales, s, work);
  std::int64_t block = work.begin / kFloat8Block;
  float next_rows[2];
  const auto fetch = [&] {
    if (block >= scales.blocks) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) next_rows[i] = inside[i] ? row_scales[block * scales.row_lines + 8 * i] : 0.0f;
    of_columns.fetch(block);
  };
  fetch();
#pragma unroll
  for (int i = 0; i < 128; ++i) sums[i] = 0.0f;
  for (std::int64_t k = 0; k < work.depth; k += Layout::kDepth) {
    const float of_rows[2]{next_rows[0], next_rows[1]};
    of_columns.place();
    ++block;
    fetch();
    wait_barrier(shared.full(ring.stage), ring.parity);
#pragma unroll
    for (int side = 0; side < 2; ++side) {
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
      if (side == 1) release_stage<kCluster>(shared, ring.stage);
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        const float2 of_column = of_columns.of(side, j);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sums[64 * side + 4 * j + i] = fmaf(part[4 * j + i], of_rows[i / 2] * (i % 2 == 0 ? of_column.x : of_column.y),
                                             sums[64 * side + 4 * j + i]);
      }
    }
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
          store_result<kProduct>(shared, sums, out, s, work, beta, NoFactors{});
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
