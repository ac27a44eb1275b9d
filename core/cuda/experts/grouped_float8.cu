// Products of float8 operands (tile_pipeline.cuh).
//
// The tensor cores keep about 14 bits of a float8 sum. Unless that is wanted, products of 256 indices of the
// contraction are summed there and then added to sums in f32; registers hold those of 64 x 256 results and half as many
// of the tensor core's, so halves of the columns take turns. While one warp group adds, the other one's products run.

#include "core/cuda/tiles/leaving_tile.cuh"
#include "core/cuda/tiles/tensor_map.h"
#include "core/cuda/tiles/tile_results.cuh"
#include "core/ops/experts/grouped_float8.h"

namespace quench::cuda {
namespace {

enum class Sums { fast, carried };
constexpr int kWindow = 2;  // stages between additions in f32

struct Scales {
  const float* rows;     // [R], or [E,M] of wgrad
  const float* columns;  // [E,N]
};

// Sums of a tile in the tensor core. Calls beside() while the products of a stage run, and last() while those of the
// last one do.
template <Product kProduct, int kCluster, class Beside, class Last>
__device__ __forceinline__ void sum_fast(const TileMemory& shared, const TileWork& work, TileRing& ring,
                                         float (&sums)[128], const Beside& beside, const Last& last) {
  using Layout = TileLayout<kProduct, E4m3>;
  const int half = static_cast<int>(threadIdx.x) / 128 - 1;
  if (work.depth == 0) {
#pragma unroll
    for (int i = 0; i < 128; ++i) sums[i] = 0.0f;
  }
  int previous = -1;
  for (std::int64_t k = 0; k < work.depth; k += Layout::kDepth) {
    wait_barrier(shared.full(ring.stage), ring.parity);
    const std::uint32_t a = shared.left(ring.stage) + static_cast<std::uint32_t>(half) * kBoxBytes;
    const std::uint32_t b = shared.right(ring.stage);
    const auto multiply = [&](int i) {
      const std::uint32_t at = static_cast<std::uint32_t>(i) * Layout::kLeftStep;
      multiply_e4m3(sums, matrix_descriptor(a + at, 0), matrix_descriptor(b + at, 0), k > 0 || i > 0);
    };
    if (kProduct != Product::wgrad || k + Layout::kDepth <= work.depth) {
      begin_products();
#pragma unroll
      for (int i = 0; i < 4; ++i) multiply(i);
      commit_products();
      beside();
      wait_products<1>();
    } else {
      // Groups of rows are multiples of a slice: what follows in the box is another group's.
      for (int i = 0; k + Layout::kSlice * i < work.depth; ++i) {
        begin_products();
        multiply(i);
        commit_products();
        wait_products<0>();
      }
    }
    if (previous >= 0) release_stage<kCluster>(shared, previous);
    previous = ring.stage;
    ring.advance();
  }
  last();
  wait_products<0>();
  settle(sums);
  if (previous >= 0) release_stage<kCluster>(shared, previous);
}

// The same with sums in f32.
template <Product kProduct, int kCluster>
__device__ void sum_carried(const TileMemory& shared, const TileWork& work, TileRing& ring, float (&sums)[128]) {
  using Layout = TileLayout<kProduct, E4m3>;
  const int half = static_cast<int>(threadIdx.x) / 128 - 1;
#pragma unroll
  for (int i = 0; i < 128; ++i) sums[i] = 0.0f;
  for (std::int64_t k = 0; k < work.depth; k += kWindow * Layout::kDepth) {
    const TileRing first = ring;
#pragma unroll
    for (int side = 0; side < 2; ++side) {  // of the columns
      float part[64];
      ring = first;
#pragma unroll
      for (int w = 0; w < kWindow; ++w) {
        const std::int64_t rest = work.depth - k - w * Layout::kDepth;
        if (rest <= 0) break;
        if (side == 0) wait_barrier(shared.full(ring.stage), ring.parity);
        const std::uint32_t a = shared.left(ring.stage) + static_cast<std::uint32_t>(half) * kBoxBytes;
        const std::uint32_t b = shared.right(ring.stage) + static_cast<std::uint32_t>(side) * (kRightBytes / 2);
        const auto multiply = [&](int i) {
          const std::uint32_t at = static_cast<std::uint32_t>(i) * Layout::kLeftStep;
          multiply_e4m3(part, matrix_descriptor(a + at, 0), matrix_descriptor(b + at, 0), w > 0 || i > 0);
        };
        if (kProduct != Product::wgrad || rest >= Layout::kDepth) {
          begin_products();
#pragma unroll
          for (int i = 0; i < 4; ++i) multiply(i);
          commit_products();
        } else {
          for (int i = 0; Layout::kSlice * i < rest; ++i) {
            begin_products();
            multiply(i);
            commit_products();
            wait_products<0>();
          }
        }
        ring.advance();
      }
      wait_products<0>();
      settle(part);
#pragma unroll
      for (int i = 0; i < 64; ++i) sums[64 * side + i] += part[i];
    }
    TileRing done = first;
#pragma unroll
    for (int w = 0; w < kWindow; ++w) {
      if (k + w * Layout::kDepth >= work.depth) break;
      release_stage<kCluster>(shared, done.stage);
      done.advance();
    }
  }
}

template <Product kProduct>
__device__ TileFactors factors_of(const Scales& scales, const TileShape& s, const TileWork& work) {
  return {kProduct == Product::wgrad ? scales.rows + std::int64_t{work.group} * s.rows : scales.rows,
          scales.columns + std::int64_t{work.group} * s.columns, s, work};
}

template <Product kProduct, int kCluster, Sums kSums, class C>
__device__ void consume(const TileMemory& shared, C* c, const Scales& scales, const std::int32_t* ends,
                        const TileShape& s, float beta, std::uint32_t rank) {
  TileRing ring;
  float sums[128];
  for (int tile = static_cast<int>(blockIdx.x) / kCluster;; tile += static_cast<int>(gridDim.x) / kCluster) {
    const TileWork work = find_work<kProduct, kCluster>(ends, s, tile, rank);
    if (work.group < 0) return;
    const TileFactors factors = factors_of<kProduct>(scales, s, work);
    if constexpr (kSums == Sums::fast)
      sum_fast<kProduct, kCluster>(
          shared, work, ring, sums, [] {}, [] {});
    else
      sum_carried<kProduct, kCluster>(shared, work, ring, sums);
    C* out = kProduct == Product::wgrad ? c + std::int64_t{work.group} * s.rows * s.columns : c;
    store_result<kProduct>(shared, sums, out, s, work, beta, factors);
  }
}

// Sums in the tensor core leave registers for results that leave beside the next tile's products.
template <Product kProduct, int kCluster>
__device__ void consume_leaving(const TileMemory& shared, const GroupResults& results, const Scales& scales,
                                const std::int32_t* ends, const TileShape& s, std::uint32_t rank) {
  TileRing ring;
  float sums[128], rows[2];
  multiply_leaving<kProduct, kCluster>(
      shared, results, ends, s, rank,
      [&](const TileWork& work, const auto& beside, const auto& last) {
        TileFactors factors = factors_of<kProduct>(scales, s, work);
        sum_fast<kProduct, kCluster>(shared, work, ring, sums, beside, [&] {
          last();
          if (threadIdx.x % 32 == 0) wait_boxes_read<0>();
          __syncwarp();
          factors.place(out_boxes(shared));
          for (int i = 0; i < 2; ++i) rows[i] = factors.rows[i];
        });
      },
      [&](int i) {
        const float2 column = TileFactors::of_columns(out_boxes(shared), i / 2);
        return make_float2(sums[2 * i] * rows[i % 2] * column.x, sums[2 * i + 1] * rows[i % 2] * column.y);
      });
}

template <Product kProduct, int kCluster, Sums kSums, class C>
__global__ __cluster_dims__(kCluster, 1, 1)
    __launch_bounds__(kTileThreads, 1) void grouped_float8_kernel(const __grid_constant__ CUtensorMap left,
                                                                  const __grid_constant__ CUtensorMap right, C* c,
                                                                  Scales scales, const std::int32_t* ends, TileShape s,
                                                                  float beta) {
  extern __shared__ unsigned char memory[];
  run_tiles<kProduct, E4m3, kCluster>(memory, &left, &right, ends, s,
                                      [&](const TileMemory& shared, std::uint32_t rank) {
                                        consume<kProduct, kCluster, kSums>(shared, c, scales, ends, s, beta, rank);
                                      });
}

template <Product kProduct, int kCluster>
__global__ __cluster_dims__(kCluster, 1, 1)
    __launch_bounds__(kTileThreads, 1) void grouped_float8_leaving_kernel(const __grid_constant__ CUtensorMap left,
                                                                          const __grid_constant__ CUtensorMap right,
                                                                          const __grid_constant__ GroupResults results,
                                                                          Scales scales, const std::int32_t* ends,
                                                                          TileShape s) {
  extern __shared__ unsigned char memory[];
  run_tiles<kProduct, E4m3, kCluster, kOutBoxesBytes>(
      memory, &left, &right, ends, s, [&](const TileMemory& shared, std::uint32_t rank) {
        consume_leaving<kProduct, kCluster>(shared, results, scales, ends, s, rank);
      });
}

template <Product kProduct, int kCluster, Sums kSums>
void launch_float8(const OpLaunch& launch, std::int64_t tiles, const CUtensorMap& left, const CUtensorMap& right,
                   const Tensor& c, const Scales& scales, const Tensor& ends, const TileShape& shape, float beta) {
  const unsigned blocks = tile_blocks(launch, tiles, kCluster);
  const auto* group_ends = ends.data<std::int32_t>();
  if (kSums == Sums::fast && c.dtype() == DType::bf16 && beta == 0.0f)
    return launch(grouped_float8_leaving_kernel<kProduct, kCluster>, blocks, kTileThreads,
                  tile_shared_bytes(kOutBoxesBytes), left, right, group_results(c), scales, group_ends, shape);
  dispatch<float, bfloat16>(c.dtype(), "grouped_float8_gemm", [&]<class C>() {
    launch(grouped_float8_kernel<kProduct, kCluster, kSums, C>, blocks, kTileThreads, kTileSharedBytes, left, right,
           c.data<C>(), scales, group_ends, shape, beta);
  });
}

// TMA reads rows of multiples of 16 bytes; eight results leave at a time.
void check_operands(std::string_view op, Device device, const Tensor& c,
                    std::initializer_list<const Tensor*> operands) {
  QUENCH_CHECK_AS(ErrorCode::unsupported, has_tile_code(device),
                  "{}: float8 products of experts need compute capability 9.0; {} has {}; recipe.emulate computes them "
                  "of bf16",
                  op, device.to_string(), compute_capability(device));
  for (const Tensor* t : operands)
    QUENCH_CHECK_AS(ErrorCode::unsupported,
                    is_small(*t) && rows_are_wide<std::byte>(t->raw_data(), t->size(-1), t->size(-1)),
                    "{}: rows of {} are not multiples of 16", op, t->describe());
  QUENCH_CHECK_AS(ErrorCode::unsupported, c.size(-1) % 8 == 0, "{}: {} columns of c are not a multiple of 8", op,
                  c.size(-1));
}

// Calls body.template operator()<kCluster, kSums>().
template <class Body>
void with_kind(int cluster, bool fast, const Body& body) {
  if (cluster == 2)
    fast ? body.template operator()<2, Sums::fast>() : body.template operator()<2, Sums::carried>();
  else
    fast ? body.template operator()<1, Sums::fast>() : body.template operator()<1, Sums::carried>();
}

void grouped_float8_gemm_cuda(const GroupedFloat8GemmArgs& args) {
  using Layout = TileLayout<Product::forward, E4m3>;
  const Tensor &a = args.a.payload(), &b = args.b.payload();
  const OpLaunch launch("grouped_float8_gemm", {&a, &b, &args.c, &args.ends});
  check_operands("grouped_float8_gemm", launch.device(), args.c, {&a, &b});
  const auto groups = static_cast<int>(args.ends.size(0));
  const TileShape shape{.groups = groups,
                        .row_tiles = 0,
                        .column_tiles = tiles_of(args.c.size(1), kTileColumns),
                        .rows = a.size(0),
                        .columns = args.c.size(1),
                        .depth = a.size(1)};
  const Scales scales{args.a.scales().data<float>(), args.b.scales().data<float>()};
  with_kind(cluster_for(shape.rows, groups), args.fast_accumulation, [&]<int kCluster, Sums kSums>() {
    launch_float8<Product::forward, kCluster, kSums>(
        launch, most_group_tiles(shape.rows, groups, kTileRows * kCluster) * shape.column_tiles,
        make_tensor_map(a, kTileRows, Layout::kDepth), make_tensor_map(b, kTileColumns / kCluster, Layout::kDepth),
        args.c, scales, args.ends, shape, 0.0f);
  });
  clear_rows_behind(launch, args.c, args.ends);
}

void grouped_float8_wgrad_cuda(const GroupedFloat8WgradArgs& args) {
  using Layout = TileLayout<Product::wgrad, E4m3>;
  const Tensor &a = args.a.codes, &b = args.b.codes;
  const OpLaunch launch("grouped_float8_wgrad", {&a, &b, &args.c, &args.ends});
  if (a.size(1) == 0) {  // no rows: a tensor map would have no bytes
    QUENCH_CHECK_AS(ErrorCode::unsupported, args.beta == 0.0f || args.beta == 1.0f,
                    "grouped_float8_wgrad: no rows with beta {}", args.beta);
    if (args.beta == 0.0f) launch.check(cudaMemsetAsync(args.c.raw_data(), 0, args.c.nbytes(), launch.stream()));
    return;
  }
  check_operands("grouped_float8_wgrad", launch.device(), args.c, {&a, &b});
  const Scales scales{args.a.scales.data<float>(), args.b.scales.data<float>()};
  with_kind(a.size(0) > kTileRows ? 2 : 1, args.fast_accumulation, [&]<int kCluster, Sums kSums>() {
    const TileShape shape{.groups = static_cast<int>(args.c.size(0)),
                          .row_tiles = tiles_of(a.size(0), kTileRows * kCluster),
                          .column_tiles = tiles_of(b.size(0), kTileColumns),
                          .rows = a.size(0),
                          .columns = b.size(0),
                          .depth = 0};
    launch_float8<Product::wgrad, kCluster, kSums>(
        launch, std::int64_t{shape.groups} * shape.row_tiles * shape.column_tiles,
        make_tensor_map(a, kTileRows, Layout::kDepth), make_tensor_map(b, kTileColumns / kCluster, Layout::kDepth),
        args.c, scales, args.ends, shape, args.beta);
  });
}

QUENCH_CUDA_KERNEL(grouped_float8_gemm_slot, grouped_float8_gemm_cuda);
QUENCH_CUDA_KERNEL(grouped_float8_wgrad_slot, grouped_float8_wgrad_cuda);

}  // namespace
}  // namespace quench::cuda
