// Products with a low-rank update, for compute capability 9.0: the contraction of a tile goes on, behind K, with the
// columns of U and the V that its columns have (tile_pipeline.cuh). Nothing of the update is written. Where SwiGLU of
// the result is wanted too, a tile has 128 columns of gates and the 128 that they let through, in the same threads.
// Where the result goes on through the backward pass of SwiGLU, it is not written (leaving_gradient.cuh).

#include "core/ops/adapters/low_rank_gemm.h"

#include "core/cuda/common/swiglu_math.cuh"
#include "core/cuda/tiles/leaving_gradient.cuh"
#include "core/cuda/tiles/leaving_tile.cuh"
#include "core/cuda/tiles/tensor_map.h"
#include "core/ops/swiglu.h"

namespace quench::cuda {
namespace {

constexpr int kPairOfBlocks = 2, kMostBlocks = 4;

template <bool kOuterRight>
using UpdatedLayout = TileLayout<kOuterRight ? Product::dgrad : Product::forward, bfloat16>;

// What becomes of C: it is written; SwiGLU of it too; or the gradient of gate and up in its place.
enum class Becomes { result, gated, gradient };

// What the kernel writes. Plain tiles have kTileColumns neighbouring columns, gated ones half of them in each half of
// C.
struct Results {
  CUtensorMap c, gated;
  GradientResults gradient;
  int second_half;  // distance of a tile's second half of columns from the first
};

// The update as the kernel takes it.
struct UpdateBlock {
  CUtensorMap v;
  int column, end, rank_begin, rank;
};
struct UpdateBlocks {
  CUtensorMap u;
  UpdateBlock blocks[kMostBlocks];
  int count;
};

// Tiles go by bands of rows, columns last.
template <Becomes kBecomes>
__device__ TileWork find_updated_work(const TileShape& s, int tile, std::uint32_t rank) {
  constexpr int kBand = kBandRows / kPairOfBlocks;
  if (tile >= s.row_tiles * s.column_tiles) return {};
  const int band = tile / (kBand * s.column_tiles), first = band * kBand;
  const int in_band = min(kBand, s.row_tiles - first), rest = tile - first * s.column_tiles, column = rest / in_band;
  TileWork work;
  work.group = 0;
  work.row = std::int64_t{first + rest - column * in_band} * (kTileRows * kPairOfBlocks) + rank * kTileRows;
  work.end = s.rows;
  work.column = std::int64_t{column} * (kBecomes == Becomes::gated ? kTileColumns / 2 : kTileColumns);
  work.depth = s.depth;
  return work;
}

// Calls body(block, k) for the steps of a tile's update: those of the blocks that have columns of it.
template <class Body>
__device__ __forceinline__ void for_update_steps(const UpdateBlocks& update, const TileWork& work, int second_half,
                                                 int step, const Body& body) {
  constexpr int kHalf = kTileColumns / 2;
  const int column = static_cast<int>(work.column);
  for (int i = 0; i < update.count; ++i) {
    const UpdateBlock& block = update.blocks[i];
    const auto has = [&](int first) { return block.column < first + kHalf && block.end > first; };
    if (!has(column) && !has(column + second_half)) continue;
    for (int k = 0; k < block.rank; k += step) body(block, k);
  }
}

// A stage of both operands, from these indices of the contraction on; what lies outside a matrix is 0.
template <bool kOuterRight>
__device__ void queue_operands(const TileMemory& shared, int stage, const CUtensorMap* left, int left_at, int row,
                               const CUtensorMap* right, int right_at, int column, int second_half,
                               std::uint32_t rank) {
  static_assert(kPairOfBlocks == 2, "each fetches half of the columns");
  constexpr auto kAll = static_cast<std::uint16_t>((1 << kPairOfBlocks) - 1);
  constexpr int kColumns = kTileColumns / kPairOfBlocks;
  const std::uint32_t barrier = shared.full(stage);
  arrive_expecting(barrier, kStageBytes);
  copy_box(shared.left(stage), left, barrier, left_at, row);
  const std::uint32_t to = shared.right(stage) + rank * (kRightBytes / kPairOfBlocks);
  const int first = column + static_cast<int>(rank) * second_half;
  if constexpr (kOuterRight) {
#pragma unroll
    for (int i = 0; i < kColumns / 64; ++i)
      copy_box_to(kAll, to + static_cast<std::uint32_t>(i) * kBoxBytes, right, barrier, first + 64 * i, right_at);
  } else {
    copy_box_to(kAll, to, right, barrier, right_at, first);
  }
}

template <bool kOuterRight, Becomes kBecomes>
__device__ void produce_updated(const TileMemory& shared, const CUtensorMap* left, const CUtensorMap* right,
                                const UpdateBlocks& update, int second_half, const TileShape& s, std::uint32_t rank) {
  constexpr int kDepth = UpdatedLayout<kOuterRight>::kDepth;
  TileRing ring;
  for (int tile = static_cast<int>(blockIdx.x) / kPairOfBlocks;; tile += static_cast<int>(gridDim.x) / kPairOfBlocks) {
    const TileWork work = find_updated_work<kBecomes>(s, tile, rank);
    if (work.group < 0) return;
    if (threadIdx.x != 0) continue;
    const int row = static_cast<int>(work.row), column = static_cast<int>(work.column);
    for (int k = 0; k < work.depth; k += kDepth) {
      wait_barrier(shared.empty(ring.stage), ring.parity ^ 1);
      queue_operands<kOuterRight>(shared, ring.stage, left, k, row, right, k, column, second_half, rank);
      ring.advance();
    }
    for_update_steps(update, work, second_half, kDepth, [&](const UpdateBlock& block, int k) {
      wait_barrier(shared.empty(ring.stage), ring.parity ^ 1);
      queue_operands<kOuterRight>(shared, ring.stage, &update.u, block.rank_begin + k, row, &block.v, k,
                                  column - block.column, second_half, rank);
      ring.advance();
    });
  }
}

// Of a tile, and where they are gated SwiGLU of them, as they are after rounding.
template <bool kGated>
using LeavingResults = LeavingTile<kTileBoxes + (kGated ? kTileBoxes / 2 : 0)>;

template <bool kGated>
__device__ __forceinline__ void send_updated(const TileMemory& shared, const LeavingResults<kGated>& tile, int box,
                                             const Results& results) {
  constexpr int kHalf = kTileBoxes / 2, kPairs = tile.kBoxPairs;
  const bool is_gated = box >= kTileBoxes;
  const auto pair = [&](int at) {
    if (!is_gated) return tile.pairs[box * kPairs + at];
    const int gate_at = (box - kTileBoxes) * kPairs + at;
    const float2 gate = unpack_pair<bfloat16>(tile.pairs[gate_at]);
    const float2 up = unpack_pair<bfloat16>(tile.pairs[gate_at + kHalf * kPairs]);
    const Vector<float, 2> result = swiglu_of(Vector<float, 2>{gate.x, gate.y}, Vector<float, 2>{up.x, up.y});
    return pack_pair<bfloat16>(result.values[0], result.values[1]);
  };
  send_box(shared, box, pair, [&](std::uint32_t from) {
    const int column = tile.column + box % kHalf * kBoxColumns + (box / kHalf == 1 ? results.second_half : 0);
    if (threadIdx.x % 32 == 0) store_box(is_gated ? &results.gated : &results.c, from, column, tile.row);
  });
}

template <bool kOuterRight, Becomes kBecomes>
__device__ void consume_updated(const TileMemory& shared, const Results& results, const UpdateBlocks& update,
                                const TileShape& s, std::uint32_t rank) {
  using Layout = UpdatedLayout<kOuterRight>;
  constexpr int kSlices = Layout::kDepth / Layout::kSlice;
  constexpr bool kGated = kBecomes == Becomes::gated, kGradient = kBecomes == Becomes::gradient;
  const int half = static_cast<int>(threadIdx.x) / 128 - 1;
  TileRing ring;
  float sums[128];
  std::conditional_t<kGradient, LeavingGradient, LeavingResults<kGated>> leaving;
  std::uint32_t fetches = 0;
  const auto send_next = [&] {
    if constexpr (kGradient)
      leave_gradient(shared, leaving, fetches, results.gradient);
    else
      leaving.send_next([&](int box) { send_updated<kGated>(shared, leaving, box, results); });
  };
  const auto send_rest = [&] {
    while (leaving.is_left()) send_next();
  };
  int tile = static_cast<int>(blockIdx.x) / kPairOfBlocks;
  TileWork work = find_updated_work<kBecomes>(s, tile, rank);
  while (work.group >= 0) {
    int previous = -1;
    const auto multiply = [&](int slice, bool add) {
      const std::uint32_t a = shared.left(ring.stage) + static_cast<std::uint32_t>(half) * kBoxBytes;
      multiply_bf16<false, kOuterRight>(
          sums, matrix_descriptor(a + static_cast<std::uint32_t>(slice) * Layout::kLeftStep, kBoxBytes),
          matrix_descriptor(shared.right(ring.stage) + static_cast<std::uint32_t>(slice) * Layout::kRightStep,
                            kBoxBytes),
          add);
    };
    const auto next_stage = [&] {
      wait_products<1>();
      if (previous >= 0) release_stage<kPairOfBlocks>(shared, previous);
      previous = ring.stage;
      ring.advance();
    };
    for (std::int64_t k = 0; k < work.depth; k += Layout::kDepth) {
      wait_barrier(shared.full(ring.stage), ring.parity);
      begin_products();
#pragma unroll
      for (int i = 0; i < kSlices; ++i) multiply(i, k > 0 || i > 0);
      commit_products();
      if (leaving.is_left()) send_next();
      next_stage();
    }
    for_update_steps(update, work, results.second_half, Layout::kDepth, [&](const UpdateBlock& block, int k) {
      wait_barrier(shared.full(ring.stage), ring.parity);
      // Behind the block's rank V is 0, and U another block's.
      const int slices = min(kSlices, (block.rank - k + Layout::kSlice - 1) / Layout::kSlice);
#pragma unroll 1
      for (int i = 0; i < slices; ++i) {
        begin_products();
        multiply(i, true);
        commit_products();
      }
      next_stage();
    });
    tile += static_cast<int>(gridDim.x) / kPairOfBlocks;
    const TileWork next = find_updated_work<kBecomes>(s, tile, rank);
    send_rest();
    wait_products<0>();
    settle(sums);
    release_stage<kPairOfBlocks>(shared, previous);
    leaving.take(work, 0, [&](int i) { return make_float2(sums[2 * i], sums[2 * i + 1]); });
    work = next;
  }
  send_rest();
  if (threadIdx.x % 32 == 0) wait_boxes_read<0>();
}

template <bool kOuterRight, Becomes kBecomes>
__global__ __cluster_dims__(kPairOfBlocks, 1, 1)
    __launch_bounds__(kTileThreads, 1) void low_rank_kernel(const __grid_constant__ CUtensorMap left,
                                                            const __grid_constant__ CUtensorMap right,
                                                            const __grid_constant__ UpdateBlocks update,
                                                            const __grid_constant__ Results results, TileShape s) {
  extern __shared__ unsigned char memory[];
  run_roles<kPairOfBlocks, kOutBoxesBytes>(
      memory,
      [&](const TileMemory& shared, std::uint32_t rank) {
        produce_updated<kOuterRight, kBecomes>(shared, &left, &right, update, results.second_half, s, rank);
      },
      [&](const TileMemory& shared, std::uint32_t rank) {
        consume_updated<kOuterRight, kBecomes>(shared, results, update, s, rank);
      });
}

template <bool kOuterRight, Becomes kBecomes>
void launch_updated(const OpLaunch& launch, const LowRankGemmArgs& args) {
  constexpr int kWide = kOuterRight ? 1 : 0, kDepth = UpdatedLayout<kOuterRight>::kDepth;
  const auto map_of_right = [](const Tensor& t) {
    return kOuterRight ? make_tensor_map(t, kDepth, 64) : make_tensor_map(t, kTileColumns / kPairOfBlocks, kDepth);
  };
  const std::int64_t rows = args.a.size(0), columns = args.b.size(kWide);
  UpdateBlocks update{.u = make_tensor_map(args.u, kTileRows, kDepth), .blocks = {}, .count = 0};
  for (const LowRankBlock& block : args.blocks) {
    const auto column = static_cast<int>(block.column);
    update.blocks[update.count++] = {map_of_right(block.v), column, column + static_cast<int>(block.v.size(kWide)),
                                     static_cast<int>(block.rank_begin), static_cast<int>(block.v.size(1 - kWide))};
  }
  const TileShape shape{.groups = 1,
                        .row_tiles = tiles_of(rows, kTileRows * kPairOfBlocks),
                        .column_tiles = tiles_of(columns, kTileColumns),  // gated: of whole tiles
                        .rows = rows,
                        .columns = columns,
                        .depth = args.a.size(1)};
  const unsigned blocks = tile_blocks(launch, std::int64_t{shape.row_tiles} * shape.column_tiles, kPairOfBlocks);
  const auto map_of_result = [](const Tensor& t) { return make_tensor_map(t, kBoxRows, kBoxColumns); };
  Results results{.c = {}, .gated = {}, .gradient = {}, .second_half = kTileColumns / 2};
  if constexpr (kBecomes == Becomes::gradient) {
    results.gradient = {map_of_result(args.gate_up), map_of_result(args.dgate_up), static_cast<int>(columns)};
  } else {
    results.c = map_of_result(args.c);
  }
  if constexpr (kBecomes == Becomes::gated) {
    results.gated = map_of_result(args.gated);
    results.second_half = static_cast<int>(columns / 2);
  }
  launch(low_rank_kernel<kOuterRight, kBecomes>, blocks, kTileThreads, tile_shared_bytes(kOutBoxesBytes),
         make_tensor_map(args.a, kTileRows, kDepth), map_of_right(args.b), update, results, shape);
}

// A box of columns lies in one of the halves gate and up: the width is a multiple of a box.
bool has_gradient_tiles(const LowRankGemmArgs& args) {
  const std::int64_t width = args.dgate_up.size(1) / 2;
  return !args.transpose_b && width % kBoxColumns == 0 &&
         rows_are_wide<bfloat16>(args.gate_up.raw_data(), width, width) &&
         rows_are_wide<bfloat16>(args.dgate_up.raw_data(), width, width);
}

bool has_updated_tiles(const LowRankGemmArgs& args, const OpLaunch& launch) {
  const auto is_tileable = [](const Tensor& t) {
    return t.dtype() == DType::bf16 && t.numel() > 0 && t.is_contiguous() && is_small(t) &&
           rows_are_wide<bfloat16>(t.raw_data(), t.size(1), t.size(1));
  };
  return args.a.size(0) >= kFewestTiledRows && args.blocks.size() <= kMostBlocks && is_tileable(args.a) &&
         is_tileable(args.b) && is_tileable(args.u) &&
         (args.dgate_up.defined() ? has_gradient_tiles(args) : is_tileable(args.c)) &&
         std::ranges::all_of(args.blocks, [&](const LowRankBlock& block) { return is_tileable(block.v); }) &&
         has_tile_code(launch.device());
}

// Whole tiles of gates only.
bool has_gated_tiles(const LowRankGemmArgs& args) {
  return args.gated.defined() && args.transpose_b && args.c.size(1) % kTileColumns == 0 &&
         rows_are_wide<bfloat16>(args.gated.raw_data(), args.gated.size(1), args.gated.size(1));
}

void low_rank_gemm_cuda(const LowRankGemmArgs& args) {
  const OpLaunch launch("low_rank_gemm",
                        {&args.a, &args.b, &args.u, &args.c, &args.gated, &args.gate_up, &args.dgate_up});
  if (!has_updated_tiles(args, launch)) return low_rank_gemm_in_products(args);
  if (args.dgate_up.defined()) return launch_updated<true, Becomes::gradient>(launch, args);
  if (has_gated_tiles(args)) return launch_updated<false, Becomes::gated>(launch, args);
  args.transpose_b ? launch_updated<false, Becomes::result>(launch, args)
                   : launch_updated<true, Becomes::result>(launch, args);
  if (args.gated.defined()) swiglu({args.c, args.gated});
}

QUENCH_CUDA_KERNEL(low_rank_gemm_slot, low_rank_gemm_cuda);

}  // namespace
}  // namespace quench::cuda
