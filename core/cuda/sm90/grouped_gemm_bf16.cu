// SM90 grouped GEMMs and wgrad, bf16 operands, f32 accumulators.

#include "core/cuda/sm90/kernels.h"

#include "core/cuda/sm90/epilogue.cuh"
#include "core/cuda/sm90/mainloop.cuh"
#include "core/cuda/sm90/overlapped_epilogue.cuh"
#include "core/cuda/sm90/tensor_map.h"

namespace quench::cuda {
namespace {

// Overlapped epilogue; beta = 0 only.
template <GemmKind kKind, int kCluster>
__device__ void overlapped_consumer(const SharedStorage& shared, const GroupedOutput& results, const std::int32_t* ends,
                                    const ProblemShape& s, std::uint32_t rank) {
  PipelineState pipe;
  float acc[128];
  overlapped_consumer_loop<kKind, kCluster>(
      shared, results, ends, s, rank,
      [&](const WorkTile& work, const auto& overlap, const auto& last) {
        mainloop<kKind, bfloat16, kCluster>(acc, pipe, shared, work, overlap, last);
      },
      [&](int i) { return make_float2(acc[2 * i], acc[2 * i + 1]); });
}

template <int kCluster, class C>
__device__ void accumulating_consumer(const SharedStorage& shared, C* c, const std::int32_t* ends,
                                      const ProblemShape& s, float beta, std::uint32_t rank) {
  constexpr GemmKind kKind = GemmKind::wgrad;
  PipelineState pipe;
  float acc[128];
  for (int tile = static_cast<int>(blockIdx.x) / kCluster;; tile += static_cast<int>(gridDim.x) / kCluster) {
    const WorkTile work = work_tile<kKind, kCluster>(ends, s, tile, rank);
    if (work.group < 0) return;
    mainloop<kKind, bfloat16, kCluster>(acc, pipe, shared, work);
    store_epilogue<kKind>(shared, acc, c + std::int64_t{work.group} * s.rows * s.columns, s, work, beta, NoScales{});
  }
}

template <GemmKind kKind, int kCluster>
__global__ __cluster_dims__(kCluster, 1, 1)
    __launch_bounds__(kCtaThreads, 1) void grouped_bf16_kernel(const __grid_constant__ CUtensorMap map_a,
                                                               const __grid_constant__ CUtensorMap map_b,
                                                               const __grid_constant__ GroupedOutput results,
                                                               const std::int32_t* ends, ProblemShape s) {
  extern __shared__ unsigned char memory[];
  run_persistent_gemm<kKind, bfloat16, kCluster, kSliceStorageBytes>(
      memory, &map_a, &map_b, ends, s, [&](const SharedStorage& shared, std::uint32_t rank) {
        overlapped_consumer<kKind, kCluster>(shared, results, ends, s, rank);
      });
}

template <int kCluster, class C>
__global__ __cluster_dims__(kCluster, 1, 1)
    __launch_bounds__(kCtaThreads, 1) void grouped_bf16_accumulate_kernel(const __grid_constant__ CUtensorMap map_a,
                                                                          const __grid_constant__ CUtensorMap map_b,
                                                                          C* c, const std::int32_t* ends,
                                                                          ProblemShape s, float beta) {
  extern __shared__ unsigned char memory[];
  run_persistent_gemm<GemmKind::wgrad, bfloat16, kCluster, kEpilogueBytes>(
      memory, &map_a, &map_b, ends, s, [&](const SharedStorage& shared, std::uint32_t rank) {
        accumulating_consumer<kCluster>(shared, c, ends, s, beta, rank);
      });
}

__global__ __launch_bounds__(256) void zero_tail_rows_kernel(uint4* c, const std::int32_t* ends, int groups,
                                                             std::int64_t chunks, std::int64_t count) {
  const std::int64_t step = std::int64_t{gridDim.x} * 256;
  for (std::int64_t i = ends[groups - 1] * chunks + std::int64_t{blockIdx.x} * 256 + threadIdx.x; i < count; i += step)
    c[i] = {};
}

bool has_wide_rows(const Tensor& t) {
  return t.dtype() == DType::bf16 && rows_are_wide<bfloat16>(t.raw_data(), t.size(-1), t.size(-1));
}

template <GemmKind kKind, int kCluster>
void launch_rows(const OpLaunch& launch, const GroupedGemmArgs& args, int groups) {
  using Layout = OperandLayout<kKind, bfloat16>;
  const ProblemShape shape{.groups = groups,
                           .tiles_m = 0,
                           .tiles_n = ceil_div(args.c.size(1), kTileN),
                           .rows = args.a.size(0),
                           .columns = args.c.size(1),
                           .k = args.a.size(1)};
  const std::int64_t tiles = max_group_tiles(shape.rows, groups, kTileM * kCluster) * shape.tiles_n;
  const CUtensorMap map_a = make_tensor_map(args.a, kTileM, Layout::kTileK);
  const CUtensorMap map_b = Layout::kMnMajorB ? make_tensor_map(args.b, Layout::kTileK, 64)
                                              : make_tensor_map(args.b, kTileN / kCluster, Layout::kTileK);
  launch(grouped_bf16_kernel<kKind, kCluster>, persistent_grid(launch, tiles, kCluster), kCtaThreads,
         smem_bytes(kSliceStorageBytes), map_a, map_b, grouped_output(args.c), args.ends.data<std::int32_t>(), shape);
}

template <int kCluster>
void launch_wgrad(const OpLaunch& launch, const GroupedWgradArgs& args) {
  const ProblemShape shape{.groups = static_cast<int>(args.c.size(0)),
                           .tiles_m = ceil_div(args.c.size(1), kTileM * kCluster),
                           .tiles_n = ceil_div(args.c.size(2), kTileN),
                           .rows = args.c.size(1),
                           .columns = args.c.size(2),
                           .k = 0};
  const std::int64_t tiles = std::int64_t{shape.groups} * shape.tiles_m * shape.tiles_n;
  const CUtensorMap map_a = make_tensor_map(args.a, 64, 64), map_b = make_tensor_map(args.b, 64, 64);
  const auto* ends = args.ends.data<std::int32_t>();
  const unsigned blocks = persistent_grid(launch, tiles, kCluster);
  if (args.c.dtype() == DType::bf16 && args.beta == 0.0f)
    return launch(grouped_bf16_kernel<GemmKind::wgrad, kCluster>, blocks, kCtaThreads, smem_bytes(kSliceStorageBytes),
                  map_a, map_b, grouped_output(args.c), ends, shape);
  dispatch<float, bfloat16>(args.c.dtype(), "grouped_wgrad", [&]<class C>() {
    launch(grouped_bf16_accumulate_kernel<kCluster, C>, blocks, kCtaThreads, kSmemBytes, map_a, map_b, args.c.data<C>(),
           ends, shape, args.beta);
  });
}

}  // namespace

void zero_tail_rows(const OpLaunch& launch, const Tensor& c, const Tensor& ends) {
  constexpr std::int64_t kPieceBytes = 16;
  const std::int64_t chunks = c.size(1) * static_cast<std::int64_t>(byte_size(c.dtype())) / kPieceBytes;
  launch(zero_tail_rows_kernel, 64, 256, 0, static_cast<uint4*>(c.raw_data()), ends.data<std::int32_t>(),
         static_cast<int>(ends.size(0)), chunks, c.size(0) * chunks);
}

bool grouped_gemm_sm90(const OpLaunch& launch, const GroupedGemmArgs& args) {
  const std::int64_t rows = args.a.size(0);
  if (rows < kMinTiledRows || !fits_tma_index(args.a) || !has_wide_rows(args.a) || !has_wide_rows(args.b) ||
      !has_wide_rows(args.c) || !has_sm90_code(launch.device()))
    return false;
  const auto groups = static_cast<int>(args.b.size(0));
  if (cluster_size_for(rows, groups) == 2)
    args.transpose_b ? launch_rows<GemmKind::forward, 2>(launch, args, groups)
                     : launch_rows<GemmKind::dgrad, 2>(launch, args, groups);
  else
    args.transpose_b ? launch_rows<GemmKind::forward, 1>(launch, args, groups)
                     : launch_rows<GemmKind::dgrad, 1>(launch, args, groups);
  zero_tail_rows(launch, args.c, args.ends);
  return true;
}

bool grouped_wgrad_sm90(const OpLaunch& launch, const GroupedWgradArgs& args) {
  const std::int64_t rows = args.a.size(0);
  if (args.alignment % 16 != 0 || rows < kMinTiledRows || !fits_tma_index(args.a) || !has_wide_rows(args.a) ||
      !has_wide_rows(args.b) || !has_sm90_code(launch.device()))
    return false;
  ceil_div(args.c.size(1), kTileM) > 1 ? launch_wgrad<2>(launch, args) : launch_wgrad<1>(launch, args);
  return true;
}

}  // namespace quench::cuda
