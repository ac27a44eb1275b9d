// SM90 grouped GEMMs of rowwise float8 operands.
//
// wgmma keeps about 14 bits of a float8 accumulator; promotion adds partial sums over 256 of K to f32 accumulators. A
// warpgroup holds 64x256 accumulators and 64x128 partial sums: column halves alternate; promotion overlaps the other
// warpgroup's wgmma.

#include "core/cuda/sm90/epilogue.cuh"
#include "core/cuda/sm90/kernels.h"
#include "core/cuda/sm90/mainloop.cuh"
#include "core/cuda/sm90/overlapped_epilogue.cuh"
#include "core/cuda/sm90/tensor_map.h"

namespace quench::cuda {
namespace {

enum class Accumulation { fast, promoted };
constexpr int kPromoteInterval = 2;  // stages

struct Scales {
  const float* rows;     // [R]; wgrad [E,M]
  const float* columns;  // [E,N]
};

// Promoted (two-level) accumulation.
template <GemmKind kKind, int kCluster>
__device__ void mainloop_promoted(const SharedStorage& shared, const WorkTile& work, PipelineState& pipe,
                                  float (&acc)[128]) {
  using Layout = OperandLayout<kKind, E4m3>;
  const int half = static_cast<int>(threadIdx.x) / 128 - 1;
#pragma unroll
  for (int i = 0; i < 128; ++i) acc[i] = 0.0f;
  for (std::int64_t k = 0; k < work.k_extent; k += kPromoteInterval * Layout::kTileK) {
    const PipelineState first = pipe;
#pragma unroll
    for (int side = 0; side < 2; ++side) {  // column half
      float part[64];
      define_accumulators(part);
      pipe = first;
#pragma unroll
      for (int w = 0; w < kPromoteInterval; ++w) {
        const std::int64_t rest = work.k_extent - k - w * Layout::kTileK;
        if (rest <= 0) break;
        if (side == 0) mbarrier_wait(shared.full(pipe.stage), pipe.phase);
        const std::uint32_t a = shared.a(pipe.stage) + static_cast<std::uint32_t>(half) * kBoxBytes;
        const std::uint32_t b = shared.b(pipe.stage) + static_cast<std::uint32_t>(side) * (kStageBytesB / 2);
        const auto mma = [&](int i) {
          const std::uint32_t at = static_cast<std::uint32_t>(i) * Layout::kStepA;
          wgmma_m64k32_e4m3(part, smem_descriptor(a + at, 0), smem_descriptor(b + at, 0), w > 0 || i > 0);
        };
        if (kKind != GemmKind::wgrad || rest >= Layout::kTileK) {
          wgmma_fence();
#pragma unroll
          for (int i = 0; i < 4; ++i) mma(i);
          wgmma_commit();
        } else {
          for (int i = 0; Layout::kInstructionK * i < rest; ++i) {
            wgmma_fence();
            mma(i);
            wgmma_commit();
            wgmma_wait<0>();
          }
        }
        pipe.advance();
      }
      wgmma_wait<0>();
      wgmma_fence_operand(part);
#pragma unroll
      for (int i = 0; i < 64; ++i) acc[64 * side + i] += part[i];
    }
    PipelineState done = first;
#pragma unroll
    for (int w = 0; w < kPromoteInterval; ++w) {
      if (k + w * Layout::kTileK >= work.k_extent) break;
      consumer_release<kCluster>(shared, done.stage);
      done.advance();
    }
  }
}

template <GemmKind kKind>
__device__ RowColumnScales<true> load_scales(const Scales& scales, const ProblemShape& s, const WorkTile& work) {
  return {kKind == GemmKind::wgrad ? scales.rows + std::int64_t{work.group} * s.rows : scales.rows,
          scales.columns + std::int64_t{work.group} * s.columns, s, work};
}

template <GemmKind kKind, int kCluster, Accumulation kAccumulation, class C>
__device__ void consume(const SharedStorage& shared, C* c, const Scales& scales, const std::int32_t* ends,
                        const ProblemShape& s, float beta, std::uint32_t rank) {
  PipelineState pipe;
  float acc[128];
  for (int tile = static_cast<int>(blockIdx.x) / kCluster;; tile += static_cast<int>(gridDim.x) / kCluster) {
    const WorkTile work = work_tile<kKind, kCluster>(ends, s, tile, rank);
    if (work.group < 0) return;
    const RowColumnScales<true> tile_scales = load_scales<kKind>(scales, s, work);
    if constexpr (kAccumulation == Accumulation::fast)
      mainloop<kKind, E4m3, kCluster>(acc, pipe, shared, work);
    else
      mainloop_promoted<kKind, kCluster>(shared, work, pipe, acc);
    C* out = kKind == GemmKind::wgrad ? c + std::int64_t{work.group} * s.rows * s.columns : c;
    store_epilogue<kKind>(shared, acc, out, s, work, beta, tile_scales);
  }
}

// Fast accumulation: enough registers for the overlapped epilogue.
template <GemmKind kKind, int kCluster>
__device__ void overlapped_consumer(const SharedStorage& shared, const GroupedOutput& results, const Scales& scales,
                                    const std::int32_t* ends, const ProblemShape& s, std::uint32_t rank) {
  PipelineState pipe;
  float acc[128], rows[2];
  overlapped_consumer_loop<kKind, kCluster>(
      shared, results, ends, s, rank,
      [&](const WorkTile& work, const auto& overlap, const auto& last) {
        RowColumnScales<true> tile_scales = load_scales<kKind>(scales, s, work);
        mainloop<kKind, E4m3, kCluster>(acc, pipe, shared, work, overlap, [&] {
          last();
          if (threadIdx.x % 32 == 0) tma_store_wait_read<0>();
          __syncwarp();
          tile_scales.stage_columns(epilogue_smem(shared));
          for (int i = 0; i < 2; ++i) rows[i] = tile_scales.rows[i];
        });
      },
      [&](int i) {
        const float2 column = RowColumnScales<true>::column_scales(epilogue_smem(shared), i / 2);
        return make_float2(acc[2 * i] * rows[i % 2] * column.x, acc[2 * i + 1] * rows[i % 2] * column.y);
      });
}

template <GemmKind kKind, int kCluster, Accumulation kAccumulation, class C>
__global__ __cluster_dims__(kCluster, 1, 1)
    __launch_bounds__(kCtaThreads, 1) void grouped_float8_kernel(const __grid_constant__ CUtensorMap map_a,
                                                                 const __grid_constant__ CUtensorMap map_b, C* c,
                                                                 Scales scales, const std::int32_t* ends,
                                                                 ProblemShape s, float beta) {
  extern __shared__ unsigned char memory[];
  run_persistent_gemm<kKind, E4m3, kCluster>(
      memory, &map_a, &map_b, ends, s, [&](const SharedStorage& shared, std::uint32_t rank) {
        consume<kKind, kCluster, kAccumulation>(shared, c, scales, ends, s, beta, rank);
      });
}

template <GemmKind kKind, int kCluster>
__global__ __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kCtaThreads, 1) void grouped_float8_overlapped_kernel(
    const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
    const __grid_constant__ GroupedOutput results, Scales scales, const std::int32_t* ends, ProblemShape s) {
  extern __shared__ unsigned char memory[];
  run_persistent_gemm<kKind, E4m3, kCluster, kSliceStorageBytes>(
      memory, &map_a, &map_b, ends, s, [&](const SharedStorage& shared, std::uint32_t rank) {
        overlapped_consumer<kKind, kCluster>(shared, results, scales, ends, s, rank);
      });
}

template <GemmKind kKind, int kCluster, Accumulation kAccumulation>
void launch_float8(const OpLaunch& launch, std::int64_t tiles, const CUtensorMap& map_a, const CUtensorMap& map_b,
                   const Tensor& c, const Scales& scales, const Tensor& ends, const ProblemShape& shape, float beta) {
  const unsigned blocks = persistent_grid(launch, tiles, kCluster);
  const auto* group_ends = ends.data<std::int32_t>();
  if (kAccumulation == Accumulation::fast && c.dtype() == DType::bf16 && beta == 0.0f)
    return launch(grouped_float8_overlapped_kernel<kKind, kCluster>, blocks, kCtaThreads,
                  smem_bytes(kSliceStorageBytes), map_a, map_b, grouped_output(c), scales, group_ends, shape);
  dispatch<float, bfloat16>(c.dtype(), "grouped_float8_gemm", [&]<class C>() {
    launch(grouped_float8_kernel<kKind, kCluster, kAccumulation, C>, blocks, kCtaThreads, kSmemBytes, map_a, map_b,
           c.data<C>(), scales, group_ends, shape, beta);
  });
}

template <class Body>
void with_accumulation(int cluster, bool fast, const Body& body) {
  if (cluster == 2)
    fast ? body.template operator()<2, Accumulation::fast>() : body.template operator()<2, Accumulation::promoted>();
  else
    fast ? body.template operator()<1, Accumulation::fast>() : body.template operator()<1, Accumulation::promoted>();
}

}  // namespace

bool grouped_float8_gemm_sm90(const OpLaunch& launch, const GroupedFloat8GemmArgs& args) {
  using Layout = OperandLayout<GemmKind::forward, E4m3>;
  const Tensor &a = args.a.payload(), &b = args.b.payload();
  if (!has_sm90_code(launch.device()) || !fits_tma_index(a) || !fits_tma_index(b)) return false;
  const auto groups = static_cast<int>(args.ends.size(0));
  const ProblemShape shape{.groups = groups,
                           .tiles_m = 0,
                           .tiles_n = ceil_div(args.c.size(1), kTileN),
                           .rows = a.size(0),
                           .columns = args.c.size(1),
                           .k = a.size(1)};
  const Scales scales{args.a.scales().data<float>(), args.b.scales().data<float>()};
  with_accumulation(
      cluster_size_for(shape.rows, groups), args.fast_accumulation, [&]<int kCluster, Accumulation kAccumulation>() {
        launch_float8<GemmKind::forward, kCluster, kAccumulation>(
            launch, max_group_tiles(shape.rows, groups, kTileM * kCluster) * shape.tiles_n,
            make_tensor_map(a, kTileM, Layout::kTileK), make_tensor_map(b, kTileN / kCluster, Layout::kTileK), args.c,
            scales, args.ends, shape, 0.0f);
      });
  zero_tail_rows(launch, args.c, args.ends);
  return true;
}

bool grouped_float8_wgrad_sm90(const OpLaunch& launch, const GroupedFloat8WgradArgs& args) {
  using Layout = OperandLayout<GemmKind::wgrad, E4m3>;
  const Tensor &a = args.a.codes, &b = args.b.codes;
  if (!has_sm90_code(launch.device()) || !fits_tma_index(a) || !fits_tma_index(b)) return false;
  const Scales scales{args.a.scales.data<float>(), args.b.scales.data<float>()};
  with_accumulation(
      a.size(0) > kTileM ? 2 : 1, args.fast_accumulation, [&]<int kCluster, Accumulation kAccumulation>() {
        const ProblemShape shape{.groups = static_cast<int>(args.c.size(0)),
                                 .tiles_m = ceil_div(a.size(0), kTileM * kCluster),
                                 .tiles_n = ceil_div(b.size(0), kTileN),
                                 .rows = a.size(0),
                                 .columns = b.size(0),
                                 .k = 0};
        launch_float8<GemmKind::wgrad, kCluster, kAccumulation>(
            launch, std::int64_t{shape.groups} * shape.tiles_m * shape.tiles_n,
            make_tensor_map(a, kTileM, Layout::kTileK), make_tensor_map(b, kTileN / kCluster, Layout::kTileK), args.c,
            scales, args.ends, shape, args.beta);
      });
  return true;
}

}  // namespace quench::cuda
