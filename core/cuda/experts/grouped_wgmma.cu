// Persistent kernels: as many blocks as there are multiprocessors take tiles of 128 x 256 in turn. One warp queues
// copies of the operands (TMA), 64 elements of the contraction at a time, four of them ahead; two warp groups multiply,
// each half of a tile's rows (wgmma), with f32 sums in registers. Blocks find the tiles from `ends` on the device.
//
// Tiles of a group go by bands of kBandRows rows of tiles, columns last, so that what the multiprocessors read at one
// time fits the second-level cache.

#include "core/cuda/experts/grouped_wgmma.h"

#include <algorithm>

#include "core/cuda/common/pack.cuh"
#include "core/cuda/experts/group_tiles.cuh"
#include "core/cuda/experts/hopper.cuh"
#include "core/cuda/experts/tensor_map.h"

namespace quench::cuda {
namespace {

constexpr int kTileRows = 128, kTileColumns = 256, kDepth = 64, kStages = 4, kBandRows = 12;
constexpr int kThreads = 384, kConsumerWarps = 8;
constexpr std::uint32_t kLeftBytes = kTileRows * kDepth * 2, kRightBytes = kTileColumns * kDepth * 2;
constexpr std::uint32_t kStageBytes = kLeftBytes + kRightBytes;
constexpr std::uint32_t kBoxBytes = 64 * kDepth * 2;  // 64 rows or columns over one step of the contraction
constexpr std::size_t kSharedBytes = kStages * kStageBytes + 1024 + 2 * kStages * 8;
// Fewer rows are a matter of reading the weights, which smaller tiles do as well.
constexpr std::int64_t kFewestRows = 512;

enum class Product { forward, dgrad, wgrad };

struct Shape3 {
  int groups, row_tiles, column_tiles;  // row_tiles of wgrad: of one group
  std::int64_t rows, columns, depth;    // of C (wgrad: of one group's); depth: of the contraction, but for wgrad
};

struct Work {
  int group = -1;        // -1: none is left
  std::int64_t row = 0;  // first row of the tile in C (wgrad: of the group)
  std::int64_t end = 0;  // of its rows
  std::int64_t column = 0;
  std::int64_t begin = 0;  // first index of the contraction
  std::int64_t depth = 0;  // indices of it
};

// All lanes of a warp call it.
template <Product kProduct>
__device__ Work find_work(const std::int32_t* ends, const Shape3& s, std::int64_t tile) {
  Work work;
  std::int64_t local = 0, tiles = 0, row = 0;
  if constexpr (kProduct == Product::wgrad) {
    const std::int64_t of_group = std::int64_t{s.row_tiles} * s.column_tiles;
    if (tile >= of_group * s.groups) return work;
    work.group = static_cast<int>(tile / of_group);
    work.begin = work.group > 0 ? ends[work.group - 1] : 0;
    work.depth = ends[work.group] - work.begin;
    work.end = s.rows;
    local = tile % of_group;
    tiles = s.row_tiles;
  } else {
    const GroupTile found = find_group_tile<kTileRows>(ends, s.groups, ends[s.groups - 1], tile / s.column_tiles);
    if (found.group < 0 || found.group >= s.groups) return work;
    work.group = found.group;
    work.end = found.end;
    work.depth = s.depth;
    local = tile - found.first * s.column_tiles;
    tiles = (found.end - found.begin + kTileRows - 1) / kTileRows;
    row = found.begin;
  }
  const std::int64_t band = local / (std::int64_t{kBandRows} * s.column_tiles), first = band * kBandRows;
  const std::int64_t in_band = min(std::int64_t{kBandRows}, tiles - first), rest = local - first * s.column_tiles;
  work.row = row + (first + rest % in_band) * kTileRows;
  work.column = rest / in_band * kTileColumns;
  return work;
}

// Where the ring of stages stands.
struct Ring {
  int stage = 0;
  std::uint32_t parity = 0;
  __device__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

struct SharedPlan {
  std::uint32_t stages, full, empty;
  __device__ std::uint32_t left(int stage) const { return stages + static_cast<std::uint32_t>(stage) * kStageBytes; }
  __device__ std::uint32_t right(int stage) const { return left(stage) + kLeftBytes; }
};

template <Product kProduct>
__device__ void queue_step(const SharedPlan& shared, int stage, const CUtensorMap* left, const CUtensorMap* right,
                           const Work& work, int k) {
  const std::uint32_t barrier = shared.full + 8 * static_cast<std::uint32_t>(stage);
  const int row = static_cast<int>(work.row), column = static_cast<int>(work.column);
  arrive_expecting(barrier, kStageBytes);
  if constexpr (kProduct == Product::wgrad) {
    const int at = static_cast<int>(work.begin) + k;
#pragma unroll
    for (int i = 0; i < kTileRows / 64; ++i)
      copy_box(shared.left(stage) + static_cast<std::uint32_t>(i) * kBoxBytes, left, barrier, row + 64 * i, at);
#pragma unroll
    for (int i = 0; i < kTileColumns / 64; ++i)
      copy_box(shared.right(stage) + static_cast<std::uint32_t>(i) * kBoxBytes, right, barrier, column + 64 * i, at);
    return;
  }
  copy_box(shared.left(stage), left, barrier, k, row);
  if constexpr (kProduct == Product::forward) {
    copy_box(shared.right(stage), right, barrier, k, column, work.group);
  } else {
#pragma unroll
    for (int i = 0; i < kTileColumns / 64; ++i)
      copy_box(shared.right(stage) + static_cast<std::uint32_t>(i) * kBoxBytes, right, barrier, column + 64 * i, k,
               work.group);
  }
}

// One warp; its first lane does it.
template <Product kProduct>
__device__ void produce(const SharedPlan& shared, const CUtensorMap* left, const CUtensorMap* right,
                        const std::int32_t* ends, const Shape3& s) {
  Ring ring;
  for (std::int64_t tile = blockIdx.x;; tile += gridDim.x) {
    const Work work = find_work<kProduct>(ends, s, tile);
    if (work.group < 0) return;
    if (threadIdx.x == 0) {
      for (int k = 0; k < work.depth; k += kDepth) {
        wait_barrier(shared.empty + 8 * static_cast<std::uint32_t>(ring.stage), ring.parity ^ 1);
        queue_step<kProduct>(shared, ring.stage, left, right, work, k);
        ring.advance();
      }
    }
    __syncwarp();
  }
}

template <Product kProduct, class C>
__device__ void consume(const SharedPlan& shared, C* c, const std::int32_t* ends, const Shape3& s, float beta) {
  constexpr bool kOuterLeft = kProduct == Product::wgrad, kOuterRight = kProduct != Product::forward;
  // Distance of 16 elements of the contraction within a stage.
  constexpr std::uint32_t kLeftStep = kOuterLeft ? 16 * 128 : 32, kRightStep = kOuterRight ? 16 * 128 : 32;
  const int half = static_cast<int>(threadIdx.x) / 128 - 1, lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) % 128 / 32;
  Ring ring;
  float sums[128];
  for (std::int64_t tile = blockIdx.x;; tile += gridDim.x) {
    const Work work = find_work<kProduct>(ends, s, tile);
    if (work.group < 0) return;
    if (work.depth == 0) {
#pragma unroll
      for (int i = 0; i < 128; ++i) sums[i] = 0.0f;
    }
    int previous = -1;
    for (std::int64_t k = 0; k < work.depth; k += kDepth) {
      wait_barrier(shared.full + 8 * static_cast<std::uint32_t>(ring.stage), ring.parity);
      const std::uint32_t a = shared.left(ring.stage) + static_cast<std::uint32_t>(half) * kBoxBytes;
      const std::uint32_t b = shared.right(ring.stage);
      const auto multiply = [&](int i) {
        multiply_64x256<kOuterLeft, kOuterRight>(
            sums, matrix_descriptor(a + static_cast<std::uint32_t>(i) * kLeftStep, kBoxBytes),
            matrix_descriptor(b + static_cast<std::uint32_t>(i) * kRightStep, kBoxBytes), k > 0 || i > 0);
      };
      if (kProduct != Product::wgrad || k + kDepth <= work.depth) {
        begin_products();
#pragma unroll
        for (int i = 0; i < kDepth / 16; ++i) multiply(i);
        commit_products();
        wait_products<1>();
      } else {
        // Groups of rows are multiples of 16: what follows in the box is another group's.
        for (int i = 0; k + 16 * i < work.depth; ++i) {
          begin_products();
          multiply(i);
          commit_products();
          wait_products<0>();
        }
      }
      if (previous >= 0 && lane == 0) arrive(shared.empty + 8 * static_cast<std::uint32_t>(previous));
      previous = ring.stage;
      ring.advance();
    }
    wait_products<0>();
    if (previous >= 0 && lane == 0) arrive(shared.empty + 8 * static_cast<std::uint32_t>(previous));

    C* out = kProduct == Product::wgrad ? c + std::int64_t{work.group} * s.rows * s.columns : c;
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const std::int64_t row = work.row + 64 * half + 16 * warp + lane / 4 + 8 * side;
      if (row >= work.end) continue;
#pragma unroll
      for (int j = 0; j < kTileColumns / 8; ++j) {
        const std::int64_t column = work.column + 8 * j + lane % 4 * 2;
        if (column >= s.columns) continue;
        C* to = out + row * s.columns + column;
        Vector<float, 2> pair{sums[4 * j + 2 * side], sums[4 * j + 2 * side + 1]};
        if (kProduct == Product::wgrad && beta != 0.0f) {
          pair[0] += beta * to_float(to[0]);
          pair[1] += beta * to_float(to[1]);
        }
        store_values<C, 2>(to, 0, pair);
      }
    }
  }
}

template <Product kProduct, class C>
__global__ __launch_bounds__(kThreads, 1) void grouped_wgmma_kernel(const __grid_constant__ CUtensorMap left,
                                                                    const __grid_constant__ CUtensorMap right, C* c,
                                                                    const std::int32_t* ends, Shape3 s, float beta) {
  extern __shared__ unsigned char memory[];
  SharedPlan shared;
  shared.stages = (shared_address(memory) + 1023u) & ~1023u;
  shared.full = shared.stages + kStages * kStageBytes;
  shared.empty = shared.full + 8 * kStages;
  if (threadIdx.x == 0) {
    for (std::uint32_t i = 0; i < kStages; ++i) {
      init_barrier(shared.full + 8 * i, 1);
      init_barrier(shared.empty + 8 * i, kConsumerWarps);
    }
    fence_barriers();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    give_registers<40>();
    if (threadIdx.x < 32) produce<kProduct>(shared, &left, &right, ends, s);
  } else {
    take_registers<232>();
    consume<kProduct>(shared, c, ends, s, beta);
  }
}

// Rows behind the last group.
__global__ __launch_bounds__(256) void clear_rest_kernel(uint4* c, const std::int32_t* ends, int groups,
                                                         std::int64_t pieces, std::int64_t count) {
  const std::int64_t step = std::int64_t{gridDim.x} * 256;
  for (std::int64_t i = ends[groups - 1] * pieces + std::int64_t{blockIdx.x} * 256 + threadIdx.x; i < count; i += step)
    c[i] = {};
}

bool has_code([[maybe_unused]] Device device) {
#if defined(QUENCH_CUDA_WGMMA)
  return compute_capability(device) == 90;
#else
  return false;
#endif
}

bool is_wide(const Tensor& t) {
  return t.dtype() == DType::bf16 && rows_are_wide<bfloat16>(t.raw_data(), t.size(-1), t.size(-1));
}

int tiles_of(std::int64_t n, std::int64_t tile) {
  return static_cast<int>((n + tile - 1) / tile);
}

unsigned blocks_of(const OpLaunch& launch, std::int64_t most_tiles) {
  return static_cast<unsigned>(std::min<std::int64_t>(multiprocessor_count(launch.device()), most_tiles));
}

// Indices that the copies count with 32 bits.
bool is_small(const Tensor& t) {
  return t.size(0) < (std::int64_t{1} << 31) - kTileColumns;
}

}  // namespace

bool grouped_gemm_wgmma(const OpLaunch& launch, const GroupedGemmArgs& args) {
  const std::int64_t rows = args.a.size(0);
  if (rows < kFewestRows || !is_small(args.a) || !is_wide(args.a) || !is_wide(args.b) || !is_wide(args.c) ||
      !has_code(launch.device()))
    return false;
  const auto groups = static_cast<int>(args.b.size(0));
  const Shape3 shape{.groups = groups,
                     .row_tiles = 0,
                     .column_tiles = tiles_of(args.c.size(1), kTileColumns),
                     .rows = rows,
                     .columns = args.c.size(1),
                     .depth = args.a.size(1)};
  const unsigned blocks = blocks_of(launch, most_group_tiles(rows, groups, kTileRows) * shape.column_tiles);
  const CUtensorMap left = make_tensor_map(args.a, kTileRows, kDepth);
  const CUtensorMap right = make_tensor_map(args.b, args.transpose_b ? kTileColumns : kDepth, 64);
  const auto* ends = args.ends.data<std::int32_t>();
  const auto kernel = args.transpose_b ? grouped_wgmma_kernel<Product::forward, bfloat16>
                                       : grouped_wgmma_kernel<Product::dgrad, bfloat16>;
  launch(kernel, blocks, kThreads, kSharedBytes, left, right, args.c.data<bfloat16>(), ends, shape, 0.0f);
  const std::int64_t pieces = args.c.size(1) / kVectorWidth<bfloat16>, count = rows * pieces;
  launch(clear_rest_kernel, 64, 256, 0, static_cast<uint4*>(args.c.raw_data()), ends, groups, pieces, count);
  return true;
}

bool grouped_wgrad_wgmma(const OpLaunch& launch, const GroupedWgradArgs& args) {
  const std::int64_t rows = args.a.size(0);
  if (args.alignment % 16 != 0 || rows < kFewestRows || !is_small(args.a) || !is_wide(args.a) || !is_wide(args.b) ||
      !has_code(launch.device()))
    return false;
  const Shape3 shape{.groups = static_cast<int>(args.c.size(0)),
                     .row_tiles = tiles_of(args.c.size(1), kTileRows),
                     .column_tiles = tiles_of(args.c.size(2), kTileColumns),
                     .rows = args.c.size(1),
                     .columns = args.c.size(2),
                     .depth = 0};
  const unsigned blocks = blocks_of(launch, std::int64_t{shape.groups} * shape.row_tiles * shape.column_tiles);
  const CUtensorMap left = make_tensor_map(args.a, kDepth, 64), right = make_tensor_map(args.b, kDepth, 64);
  dispatch<float, bfloat16>(args.c.dtype(), "grouped_wgrad", [&]<class C>() {
    launch(grouped_wgmma_kernel<Product::wgrad, C>, blocks, kThreads, kSharedBytes, left, right, args.c.data<C>(),
           args.ends.data<std::int32_t>(), shape, args.beta);
  });
  return true;
}

}  // namespace quench::cuda
