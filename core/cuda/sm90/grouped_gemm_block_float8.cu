// SM90 grouped float8 GEMMs with block scaling: 1x128 activations x 128x128 weights; wgrad 1x128 x 1x128.
//
// One pipeline stage per scale block of K; its partial sums are scaled and promoted to f32. A warpgroup holds 64x256
// accumulators and 64x128 partial sums: column halves alternate; promotion overlaps the other warpgroup's wgmma.

#include "core/cuda/sm90/epilogue.cuh"
#include "core/cuda/sm90/kernels.h"
#include "core/cuda/sm90/tensor_map.h"

namespace quench::cuda {
namespace {

struct BlockScales {
  const float* rows;           // [blocks,R]; wgrad [blocks,M]
  const float* columns;        // [E,float8_blocks(N),blocks]; wgrad [blocks,N]
  std::int64_t row_groups;     // R or M
  std::int64_t column_blocks;  // float8_blocks(N)
  std::int64_t blocks;         // along K
};

// Column scales of a K block. 128x128: a scalar per column half. kEach (1x128): in shared memory, eight per lane
// prefetched one block ahead.
template <bool kEach>
class ColumnScales {
 public:
  __device__ ColumnScales(const SharedStorage& shared, const BlockScales& scales, const ProblemShape& s,
                          const WorkTile& work)
      : copy_(shared.scales + (threadIdx.x / 32 - 4) * kScaleWarpBytes), blocks_(scales.blocks) {
    if constexpr (kEach) {
      const std::int64_t column = work.column + 8 * (threadIdx.x % 32);
      from_ = scales.columns + column;
      step_ = s.columns;
      inside_ = column < s.columns;  // N % 8 == 0
    } else {
      from_ = scales.columns + (work.group * scales.column_blocks + work.column / kFloat8Block) * scales.blocks;
      inside_ = work.column + kFloat8Block < s.columns;  // second half
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
  // Makes prefetched scales current.
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
  // Thread's two columns in column block `eight`.
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

template <GemmKind kKind, int kCluster>
__device__ void mainloop_block_scaled(const SharedStorage& shared, const BlockScales& scales, const ProblemShape& s,
                                      const WorkTile& work, PipelineState& pipe, float (&acc)[128]) {
  using Layout = OperandLayout<kKind, E4m3>;
  static_assert(Layout::kTileK == kFloat8Block && kTileN == 2 * kFloat8Block);
  const int half = static_cast<int>(threadIdx.x) / 128 - 1, lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t row = work.row + 16 * (static_cast<int>(threadIdx.x) / 32 - 4) + lane / 4;
  const float* row_scales = scales.rows + row;
  const bool inside[2]{row < work.end, row + 8 < work.end};
  ColumnScales<kKind == GemmKind::wgrad> column_scales(shared, scales, s, work);
  std::int64_t block = work.k_begin / kFloat8Block;
  float next_rows[2];
  const auto fetch = [&] {
    if (block >= scales.blocks) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) next_rows[i] = inside[i] ? row_scales[block * scales.row_groups + 8 * i] : 0.0f;
    column_scales.fetch(block);
  };
  fetch();
#pragma unroll
  for (int i = 0; i < 128; ++i) acc[i] = 0.0f;
  for (std::int64_t k = 0; k < work.k_extent; k += Layout::kTileK) {
    const float of_rows[2]{next_rows[0], next_rows[1]};
    column_scales.place();
    ++block;
    fetch();
    mbarrier_wait(shared.full(pipe.stage), pipe.phase);
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const std::uint32_t a = shared.a(pipe.stage) + static_cast<std::uint32_t>(half) * kBoxBytes;
      const std::uint32_t b = shared.b(pipe.stage) + static_cast<std::uint32_t>(side) * (kStageBytesB / 2);
      float part[64];
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t at = static_cast<std::uint32_t>(i) * Layout::kStepA;
        wgmma_m64k32_e4m3(part, smem_descriptor(a + at, 0), smem_descriptor(b + at, 0), i > 0);
      }
      wgmma_commit();
      wgmma_wait<0>();
      wgmma_fence_operand(part);
      if (side == 1) consumer_release<kCluster>(shared, pipe.stage);
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        const float2 of_column = column_scales.of(side, j);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          acc[64 * side + 4 * j + i] = fmaf(part[4 * j + i], of_rows[i / 2] * (i % 2 == 0 ? of_column.x : of_column.y),
                                            acc[64 * side + 4 * j + i]);
      }
    }
    pipe.advance();
  }
}

template <GemmKind kKind, int kCluster, class C>
__global__ __cluster_dims__(kCluster, 1, 1)
    __launch_bounds__(kCtaThreads, 1) void block_float8_kernel(const __grid_constant__ CUtensorMap map_a,
                                                               const __grid_constant__ CUtensorMap map_b, C* c,
                                                               BlockScales scales, const std::int32_t* ends,
                                                               ProblemShape s, float beta) {
  extern __shared__ unsigned char memory[];
  constexpr bool kWgrad = kKind == GemmKind::wgrad;
  run_persistent_gemm<kKind, E4m3, kCluster>(
      memory, &map_a, &map_b, ends, s, [&](const SharedStorage& shared, std::uint32_t rank) {
        PipelineState pipe;
        float acc[128];
        for (int tile = static_cast<int>(blockIdx.x) / kCluster;; tile += static_cast<int>(gridDim.x) / kCluster) {
          const WorkTile work = work_tile<kKind, kCluster>(ends, s, tile, rank);
          if (work.group < 0) return;
          mainloop_block_scaled<kKind, kCluster>(shared, scales, s, work, pipe, acc);
          C* out = kWgrad ? c + std::int64_t{work.group} * s.rows * s.columns : c;
          store_epilogue<kKind>(shared, acc, out, s, work, beta, NoScales{});
        }
      });
}

template <class Body>
void with_cluster(int cluster, const Body& body) {
  cluster == 2 ? body.template operator()<2>() : body.template operator()<1>();
}

}  // namespace

bool block_float8_gemm_sm90(const OpLaunch& launch, const BlockFloat8GemmArgs& args) {
  using Layout = OperandLayout<GemmKind::forward, E4m3>;
  const Tensor &a = args.a.codes, &b = args.b.codes;
  if (!has_sm90_code(launch.device()) || !fits_tma_index(a) || !fits_tma_index(b)) return false;
  const auto groups = static_cast<int>(args.ends.size(0));
  const ProblemShape shape{.groups = groups,
                           .tiles_m = 0,
                           .tiles_n = ceil_div(args.c.size(1), kTileN),
                           .rows = a.size(0),
                           .columns = args.c.size(1),
                           .k = a.size(1)};
  const BlockScales scales{.rows = args.a.scales.data<float>(),
                           .columns = args.b.scales.data<float>(),
                           .row_groups = a.size(0),
                           .column_blocks = args.b.scales.size(1),
                           .blocks = args.b.scales.size(2)};
  dispatch<float, bfloat16>(args.c.dtype(), "block_float8_gemm", [&]<class C>() {
    with_cluster(cluster_size_for(shape.rows, groups), [&]<int kCluster>() {
      const std::int64_t tiles = max_group_tiles(shape.rows, groups, kTileM * kCluster) * shape.tiles_n;
      launch(block_float8_kernel<GemmKind::forward, kCluster, C>, persistent_grid(launch, tiles, kCluster), kCtaThreads,
             kSmemBytes, make_tensor_map(a, kTileM, Layout::kTileK),
             make_tensor_map(b, kTileN / kCluster, Layout::kTileK), args.c.data<C>(), scales,
             args.ends.data<std::int32_t>(), shape, 0.0f);
    });
  });
  zero_tail_rows(launch, args.c, args.ends);
  return true;
}

bool block_float8_wgrad_sm90(const OpLaunch& launch, const BlockFloat8WgradArgs& args) {
  using Layout = OperandLayout<GemmKind::wgrad, E4m3>;
  const Tensor &a = args.a.codes, &b = args.b.codes;
  if (!has_sm90_code(launch.device()) || !fits_tma_index(a) || !fits_tma_index(b)) return false;
  const BlockScales scales{.rows = args.a.scales.data<float>(),
                           .columns = args.b.scales.data<float>(),
                           .row_groups = a.size(0),
                           .column_blocks = 0,
                           .blocks = args.a.scales.size(0)};
  dispatch<float, bfloat16>(args.c.dtype(), "block_float8_wgrad", [&]<class C>() {
    with_cluster(a.size(0) > kTileM ? 2 : 1, [&]<int kCluster>() {
      const ProblemShape shape{.groups = static_cast<int>(args.c.size(0)),
                               .tiles_m = ceil_div(a.size(0), kTileM * kCluster),
                               .tiles_n = ceil_div(b.size(0), kTileN),
                               .rows = a.size(0),
                               .columns = b.size(0),
                               .k = 0};
      const std::int64_t tiles = std::int64_t{shape.groups} * shape.tiles_m * shape.tiles_n;
      launch(block_float8_kernel<GemmKind::wgrad, kCluster, C>, persistent_grid(launch, tiles, kCluster), kCtaThreads,
             kSmemBytes, make_tensor_map(a, kTileM, Layout::kTileK),
             make_tensor_map(b, kTileN / kCluster, Layout::kTileK), args.c.data<C>(), scales,
             args.ends.data<std::int32_t>(), shape, args.beta);
    });
  });
  return true;
}

}  // namespace quench::cuda
