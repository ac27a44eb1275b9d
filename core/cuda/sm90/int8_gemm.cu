// SM90 GEMM of rowwise int8 operands: exact s32 sums by wgmma, f32(sum) * row scale * column scale.

#include "core/cuda/sm90/epilogue.cuh"
#include "core/cuda/sm90/kernels.h"
#include "core/cuda/sm90/mainloop.cuh"
#include "core/cuda/sm90/overlapped_epilogue.cuh"
#include "core/cuda/sm90/tensor_map.h"

namespace quench::cuda {
namespace {

constexpr GemmKind kKind = GemmKind::dense;
// Sums of 127 * 128 in s32.
constexpr std::int64_t kMaxDepth = 131072;

struct Scales {
  const float *rows, *columns;
};

// bf16 C, without beta.
template <int kCluster>
__global__ __cluster_dims__(kCluster, 1, 1)
    __launch_bounds__(kCtaThreads, 1) void int8_overlapped_kernel(const __grid_constant__ CUtensorMap map_a,
                                                                  const __grid_constant__ CUtensorMap map_b,
                                                                  const __grid_constant__ GroupedOutput results,
                                                                  Scales scales, ProblemShape s) {
  extern __shared__ unsigned char memory[];
  run_persistent_gemm<kKind, Int8Code, kCluster, kSliceStorageBytes>(
      memory, &map_a, &map_b, nullptr, s, [&](const SharedStorage& shared, std::uint32_t rank) {
        PipelineState pipe;
        int acc[128];
        float rows[2];
        overlapped_consumer_loop<kKind, kCluster>(
            shared, results, nullptr, s, rank,
            [&](const WorkTile& work, const auto& overlap, const auto& last) {
              RowColumnScales<false> tile_scales(scales.rows, scales.columns, s, work);
              mainloop<kKind, Int8Code, kCluster>(acc, pipe, shared, work, overlap, [&] {
                last();
                if (threadIdx.x % 32 == 0) tma_store_wait_read<0>();
                __syncwarp();
                tile_scales.stage_columns(epilogue_smem(shared));
                for (int i = 0; i < 2; ++i) rows[i] = tile_scales.rows[i];
              });
            },
            [&](int i) {
              const float2 column = RowColumnScales<false>::column_scales(epilogue_smem(shared), i / 2);
              return make_float2(static_cast<float>(acc[2 * i]) * rows[i % 2] * column.x,
                                 static_cast<float>(acc[2 * i + 1]) * rows[i % 2] * column.y);
            });
      });
}

template <int kCluster, class C>
__global__ __cluster_dims__(kCluster, 1, 1)
    __launch_bounds__(kCtaThreads, 1) void int8_kernel(const __grid_constant__ CUtensorMap map_a,
                                                       const __grid_constant__ CUtensorMap map_b, C* c, Scales scales,
                                                       ProblemShape s, float beta) {
  extern __shared__ unsigned char memory[];
  run_persistent_gemm<kKind, Int8Code, kCluster>(
      memory, &map_a, &map_b, nullptr, s, [&](const SharedStorage& shared, std::uint32_t rank) {
        PipelineState pipe;
        int acc[128];
        for (int tile = static_cast<int>(blockIdx.x) / kCluster;; tile += static_cast<int>(gridDim.x) / kCluster) {
          const WorkTile work = work_tile<kKind, kCluster>(nullptr, s, tile, rank);
          if (work.group < 0) return;
          const RowColumnScales<false> tile_scales(scales.rows, scales.columns, s, work);
          mainloop<kKind, Int8Code, kCluster>(acc, pipe, shared, work);
          if (beta != 0.0f)
            store_accumulators<true>(shared, acc, c, s, work, beta, tile_scales);
          else
            store_accumulators<false>(shared, acc, c, s, work, beta, tile_scales);
        }
      });
}

template <int kCluster>
void launch_int8(const OpLaunch& launch, const ScaledGemmArgs& args) {
  using Layout = OperandLayout<kKind, Int8Code>;
  const Tensor &a = args.a.payload(), &b = args.b.payload();
  const ProblemShape shape{.groups = 1,
                           .tiles_m = ceil_div(a.size(0), kTileM * kCluster),
                           .tiles_n = ceil_div(b.size(0), kTileN),
                           .rows = a.size(0),
                           .columns = b.size(0),
                           .k = a.size(1)};
  const Scales scales{args.a.scales().data<float>(), args.b.scales().data<float>()};
  const CUtensorMap map_a = make_tensor_map(a, kTileM, Layout::kTileK),
                    map_b = make_tensor_map(b, kTileN / kCluster, Layout::kTileK);
  const unsigned blocks = persistent_grid(launch, std::int64_t{shape.tiles_m} * shape.tiles_n, kCluster);
  if (args.c.dtype() == DType::bf16 && args.beta == 0.0f)
    return launch(int8_overlapped_kernel<kCluster>, blocks, kCtaThreads, smem_bytes(kSliceStorageBytes), map_a, map_b,
                  grouped_output(args.c), scales, shape);
  dispatch<float, bfloat16>(args.c.dtype(), "scaled_gemm", [&]<class C>() {
    launch(int8_kernel<kCluster, C>, blocks, kCtaThreads, kSmemBytes, map_a, map_b, args.c.data<C>(), scales, shape,
           args.beta);
  });
}

}  // namespace

bool int8_gemm_sm90(const OpLaunch& launch, const ScaledGemmArgs& args) {
  const Tensor &a = args.a.payload(), &b = args.b.payload();
  if (!has_sm90_code(launch.device()) || !args.c.is_contiguous() || a.size(1) > kMaxDepth || !fits_tma_index(a) ||
      !fits_tma_index(b))
    return false;
  if (cluster_size_for(a.size(0), 1) == 2)
    launch_int8<2>(launch, args);
  else
    launch_int8<1>(launch, args);
  return true;
}

}  // namespace quench::cuda
