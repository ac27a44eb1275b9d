// SM90 GEMM with a fused LoRA update: C = A B + U V, as extra K iterations over the rank blocks. Epilogues: plain;
// gated unit (128 gate and up columns per tile, both in one thread); its backward (swiglu_backward_epilogue.cuh).

#include "core/cuda/common/swiglu_math.cuh"
#include "core/cuda/sm90/kernels.h"
#include "core/cuda/sm90/overlapped_epilogue.cuh"
#include "core/cuda/sm90/swiglu_backward_epilogue.cuh"
#include "core/cuda/sm90/tensor_map.h"
#include "core/ops/swiglu.h"

namespace quench::cuda {
namespace {

constexpr int kClusterSize = 2, kMaxBlocks = 4;

template <bool kMnMajorB>
using LoraLayout = OperandLayout<kMnMajorB ? GemmKind::dgrad : GemmKind::forward, bfloat16>;

// C; C and its gated unit; d_gate and d_up in place of C.
enum class Output { result, gated, gradient };

// Plain tile: kTileN adjacent columns; gated tile: half in each half of C.
struct Results {
  CUtensorMap c, gated;
  SwigluGradientOutput gradient;
  int second_half;  // column offset of the second half
};

struct UpdateBlock {
  CUtensorMap v;
  int column, end, rank_begin, rank;
};
struct UpdateBlocks {
  CUtensorMap u;
  UpdateBlock blocks[kMaxBlocks];
  int count;
};

template <Output kOutput>
__device__ WorkTile lora_work_tile(const ProblemShape& s, int tile, std::uint32_t rank) {
  constexpr int kRaster = kRasterRows / kClusterSize;
  if (tile >= s.tiles_m * s.tiles_n) return {};
  const int band = tile / (kRaster * s.tiles_n), first = band * kRaster;
  const int in_band = min(kRaster, s.tiles_m - first), rest = tile - first * s.tiles_n, column = rest / in_band;
  WorkTile work;
  work.group = 0;
  work.row = std::int64_t{first + rest - column * in_band} * (kTileM * kClusterSize) + rank * kTileM;
  work.end = s.rows;
  work.column = std::int64_t{column} * (kOutput == Output::gated ? kTileN / 2 : kTileN);
  work.k_extent = s.k;
  return work;
}

// body(block, k) per K iteration of the update blocks within the tile's columns.
template <class Body>
__device__ __forceinline__ void for_update_steps(const UpdateBlocks& update, const WorkTile& work, int second_half,
                                                 int step, const Body& body) {
  constexpr int kHalf = kTileN / 2;
  const int column = static_cast<int>(work.column);
  for (int i = 0; i < update.count; ++i) {
    const UpdateBlock& block = update.blocks[i];
    const auto has = [&](int first) { return block.column < first + kHalf && block.end > first; };
    if (!has(column) && !has(column + second_half)) continue;
    for (int k = 0; k < block.rank; k += step) body(block, k);
  }
}

// Out-of-bounds elements are 0.
template <bool kMnMajorB>
__device__ void issue_lora_stage(const SharedStorage& shared, int stage, const CUtensorMap* map_a, int k_a, int row,
                                 const CUtensorMap* map_b, int k_b, int column, int second_half, std::uint32_t rank) {
  static_assert(kClusterSize == 2, "each fetches half of the columns");
  constexpr auto kAll = static_cast<std::uint16_t>((1 << kClusterSize) - 1);
  constexpr int kColumns = kTileN / kClusterSize;
  const std::uint32_t barrier = shared.full(stage);
  mbarrier_arrive_expect_tx(barrier, kStageBytes);
  tma_load(shared.a(stage), map_a, barrier, k_a, row);
  const std::uint32_t to = shared.b(stage) + rank * (kStageBytesB / kClusterSize);
  const int first = column + static_cast<int>(rank) * second_half;
  if constexpr (kMnMajorB) {
#pragma unroll
    for (int i = 0; i < kColumns / 64; ++i)
      tma_load_multicast(kAll, to + static_cast<std::uint32_t>(i) * kBoxBytes, map_b, barrier, first + 64 * i, k_b);
  } else {
    tma_load_multicast(kAll, to, map_b, barrier, k_b, first);
  }
}

template <bool kMnMajorB, Output kOutput>
__device__ void lora_producer_loop(const SharedStorage& shared, const CUtensorMap* map_a, const CUtensorMap* map_b,
                                   const UpdateBlocks& update, int second_half, const ProblemShape& s,
                                   std::uint32_t rank) {
  constexpr int kTileK = LoraLayout<kMnMajorB>::kTileK;
  PipelineState pipe;
  for (int tile = static_cast<int>(blockIdx.x) / kClusterSize;; tile += static_cast<int>(gridDim.x) / kClusterSize) {
    const WorkTile work = lora_work_tile<kOutput>(s, tile, rank);
    if (work.group < 0) return;
    if (threadIdx.x != 0) continue;
    const int row = static_cast<int>(work.row), column = static_cast<int>(work.column);
    for (int k = 0; k < work.k_extent; k += kTileK) {
      mbarrier_wait(shared.empty(pipe.stage), pipe.phase ^ 1);
      issue_lora_stage<kMnMajorB>(shared, pipe.stage, map_a, k, row, map_b, k, column, second_half, rank);
      pipe.advance();
    }
    for_update_steps(update, work, second_half, kTileK, [&](const UpdateBlock& block, int k) {
      mbarrier_wait(shared.empty(pipe.stage), pipe.phase ^ 1);
      issue_lora_stage<kMnMajorB>(shared, pipe.stage, &update.u, block.rank_begin + k, row, &block.v, k,
                                  column - block.column, second_half, rank);
      pipe.advance();
    });
  }
}

// Slices of the tile, then of the gated unit of the rounded values.
template <bool kGated>
using LoraEpilogue = OverlappedEpilogue<kTileSlices + (kGated ? kTileSlices / 2 : 0)>;

template <bool kGated, GatedActivation kActivation>
__device__ __forceinline__ void store_lora_slice(const SharedStorage& shared, const LoraEpilogue<kGated>& tile,
                                                 int slice, const Results& results) {
  constexpr int kHalf = kTileSlices / 2, kPairs = tile.kSlicePairs;
  const bool is_gated = slice >= kTileSlices;
  const auto pair = [&](int at) {
    if (!is_gated) return tile.pairs[slice * kPairs + at];
    const int gate_at = (slice - kTileSlices) * kPairs + at;
    std::uint32_t gate_pair = tile.pairs[gate_at];
    // Volatile, or the unit of the whole tile is computed ahead of the drain loop: GeGLU then spills 208 registers.
    if constexpr (kActivation != GatedActivation::silu) asm volatile("" : "+r"(gate_pair));
    const float2 gate = unpack_pair<bfloat16>(gate_pair);
    const float2 up = unpack_pair<bfloat16>(tile.pairs[gate_at + kHalf * kPairs]);
    const Vector<float, 2> result =
        swiglu_of<kActivation>(Vector<float, 2>{gate.x, gate.y}, Vector<float, 2>{up.x, up.y});
    return pack_pair<bfloat16>(result.values[0], result.values[1]);
  };
  tma_store_slice(shared, slice, pair, [&](std::uint32_t from) {
    const int column = tile.column + slice % kHalf * kSliceColumns + (slice / kHalf == 1 ? results.second_half : 0);
    if (threadIdx.x % 32 == 0) tma_store(is_gated ? &results.gated : &results.c, from, column, tile.row);
  });
}

template <bool kMnMajorB, Output kOutput, GatedActivation kActivation>
__device__ void lora_consumer_loop(const SharedStorage& shared, const Results& results, const UpdateBlocks& update,
                                   const ProblemShape& s, std::uint32_t rank) {
  using Layout = LoraLayout<kMnMajorB>;
  constexpr int kInstructions = Layout::kTileK / Layout::kInstructionK;
  constexpr bool kGated = kOutput == Output::gated, kGradient = kOutput == Output::gradient;
  const int half = static_cast<int>(threadIdx.x) / 128 - 1;
  PipelineState pipe;
  float acc[128];
  std::conditional_t<kGradient, SwigluBackwardEpilogue, LoraEpilogue<kGated>> epilogue;
  std::uint32_t fetches = 0;
  const auto step = [&] {
    if constexpr (kGradient)
      swiglu_backward_step<kActivation>(shared, epilogue, fetches, results.gradient);
    else
      epilogue.step([&](int slice) { store_lora_slice<kGated, kActivation>(shared, epilogue, slice, results); });
  };
  const auto drain = [&] {
    while (epilogue.pending()) step();
  };
  int tile = static_cast<int>(blockIdx.x) / kClusterSize;
  WorkTile work = lora_work_tile<kOutput>(s, tile, rank);
  while (work.group >= 0) {
    define_accumulators(acc);
    int previous = -1;
    const auto mma = [&](int slice, bool add) {
      const std::uint32_t a = shared.a(pipe.stage) + static_cast<std::uint32_t>(half) * kBoxBytes;
      wgmma_m64n256k16_bf16<false, kMnMajorB>(
          acc, smem_descriptor(a + static_cast<std::uint32_t>(slice) * Layout::kStepA, kBoxBytes),
          smem_descriptor(shared.b(pipe.stage) + static_cast<std::uint32_t>(slice) * Layout::kStepB, kBoxBytes), add);
    };
    const auto next_stage = [&] {
      wgmma_wait<1>();
      if (previous >= 0) consumer_release<kClusterSize>(shared, previous);
      previous = pipe.stage;
      pipe.advance();
    };
    for (std::int64_t k = 0; k < work.k_extent; k += Layout::kTileK) {
      mbarrier_wait(shared.full(pipe.stage), pipe.phase);
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < kInstructions; ++i) mma(i, k > 0 || i > 0);
      wgmma_commit();
      if (epilogue.pending()) step();
      next_stage();
    }
    for_update_steps(update, work, results.second_half, Layout::kTileK, [&](const UpdateBlock& block, int k) {
      mbarrier_wait(shared.full(pipe.stage), pipe.phase);
      // Past the block's rank V is 0 and U another block's.
      const int slices = min(kInstructions, (block.rank - k + Layout::kInstructionK - 1) / Layout::kInstructionK);
#pragma unroll 1
      for (int i = 0; i < slices; ++i) {
        wgmma_fence();
        mma(i, true);
        wgmma_commit();
      }
      next_stage();
    });
    tile += static_cast<int>(gridDim.x) / kClusterSize;
    const WorkTile next = lora_work_tile<kOutput>(s, tile, rank);
    drain();
    wgmma_wait<0>();
    wgmma_fence_operand(acc);
    consumer_release<kClusterSize>(shared, previous);
    epilogue.pack(work, 0, [&](int i) { return make_float2(acc[2 * i], acc[2 * i + 1]); });
    work = next;
  }
  drain();
  if (threadIdx.x % 32 == 0) tma_store_wait_read<0>();
}

template <bool kMnMajorB, Output kOutput, GatedActivation kActivation>
__global__ __cluster_dims__(kClusterSize, 1, 1)
    __launch_bounds__(kCtaThreads, 1) void low_rank_kernel(const __grid_constant__ CUtensorMap map_a,
                                                           const __grid_constant__ CUtensorMap map_b,
                                                           const __grid_constant__ UpdateBlocks update,
                                                           const __grid_constant__ Results results, ProblemShape s) {
  extern __shared__ unsigned char memory[];
  run_warp_specialized<kClusterSize, kSliceStorageBytes>(
      memory,
      [&](const SharedStorage& shared, std::uint32_t rank) {
        lora_producer_loop<kMnMajorB, kOutput>(shared, &map_a, &map_b, update, results.second_half, s, rank);
      },
      [&](const SharedStorage& shared, std::uint32_t rank) {
        lora_consumer_loop<kMnMajorB, kOutput, kActivation>(shared, results, update, s, rank);
      });
}

template <bool kMnMajorB, Output kOutput, GatedActivation kActivation = GatedActivation::silu>
void launch_lora(const OpLaunch& launch, const LowRankGemmArgs& args) {
  constexpr int kWide = kMnMajorB ? 1 : 0, kTileK = LoraLayout<kMnMajorB>::kTileK;
  const auto map_of_right = [](const Tensor& t) {
    return kMnMajorB ? make_tensor_map(t, kTileK, 64) : make_tensor_map(t, kTileN / kClusterSize, kTileK);
  };
  const std::int64_t rows = args.a.size(0), columns = args.b.size(kWide);
  UpdateBlocks update{.u = make_tensor_map(args.u, kTileM, kTileK), .blocks = {}, .count = 0};
  for (const LowRankBlock& block : args.blocks) {
    const auto column = static_cast<int>(block.column);
    update.blocks[update.count++] = {map_of_right(block.v), column, column + static_cast<int>(block.v.size(kWide)),
                                     static_cast<int>(block.rank_begin), static_cast<int>(block.v.size(1 - kWide))};
  }
  const ProblemShape shape{.groups = 1,
                           .tiles_m = ceil_div(rows, kTileM * kClusterSize),
                           .tiles_n = ceil_div(columns, kTileN),  // gated: whole tiles
                           .rows = rows,
                           .columns = columns,
                           .k = args.a.size(1)};
  const unsigned blocks = persistent_grid(launch, std::int64_t{shape.tiles_m} * shape.tiles_n, kClusterSize);
  const auto map_of_result = [](const Tensor& t) { return make_tensor_map(t, kSliceRows, kSliceColumns); };
  Results results{.c = {}, .gated = {}, .gradient = {}, .second_half = kTileN / 2};
  if constexpr (kOutput == Output::gradient) {
    results.gradient = {map_of_result(args.gate_up), map_of_result(args.dgate_up), static_cast<int>(columns)};
  } else {
    results.c = map_of_result(args.c);
  }
  if constexpr (kOutput == Output::gated) {
    results.gated = map_of_result(args.gated);
    results.second_half = static_cast<int>(columns / 2);
  }
  launch(low_rank_kernel<kMnMajorB, kOutput, kActivation>, blocks, kCtaThreads, smem_bytes(kSliceStorageBytes),
         make_tensor_map(args.a, kTileM, kTileK), map_of_right(args.b), update, results, shape);
}

// Gated outputs, with the activation of `args`.
template <bool kMnMajorB, Output kOutput>
void launch_gated(const OpLaunch& launch, const LowRankGemmArgs& args) {
  static_assert(kOutput != Output::result);
  if (args.activation == GatedActivation::silu)
    launch_lora<kMnMajorB, kOutput, GatedActivation::silu>(launch, args);
  else
    launch_lora<kMnMajorB, kOutput, GatedActivation::gelu_tanh>(launch, args);
}

// A store slice lies in either gate or up.
bool supports_gated_backward(const LowRankGemmArgs& args) {
  const std::int64_t width = args.dgate_up.size(1) / 2;
  return !args.transpose_b && width % kSliceColumns == 0 &&
         rows_are_wide<bfloat16>(args.gate_up.raw_data(), width, width) &&
         rows_are_wide<bfloat16>(args.dgate_up.raw_data(), width, width);
}

bool is_supported(const LowRankGemmArgs& args, const OpLaunch& launch) {
  const auto is_tileable = [](const Tensor& t) {
    return t.dtype() == DType::bf16 && t.numel() > 0 && t.is_contiguous() && fits_tma_index(t) &&
           rows_are_wide<bfloat16>(t.raw_data(), t.size(1), t.size(1));
  };
  return args.a.size(0) >= kMinTiledRows && args.blocks.size() <= kMaxBlocks && is_tileable(args.a) &&
         is_tileable(args.b) && is_tileable(args.u) &&
         (args.dgate_up.defined() ? supports_gated_backward(args) : is_tileable(args.c)) &&
         std::ranges::all_of(args.blocks, [&](const LowRankBlock& block) { return is_tileable(block.v); }) &&
         has_sm90_code(launch.device());
}

// Whole tiles.
bool supports_gated(const LowRankGemmArgs& args) {
  return args.gated.defined() && args.transpose_b && args.c.size(1) % kTileN == 0 &&
         rows_are_wide<bfloat16>(args.gated.raw_data(), args.gated.size(1), args.gated.size(1));
}

}  // namespace

bool low_rank_gemm_sm90(const OpLaunch& launch, const LowRankGemmArgs& args) {
  if (!is_supported(args, launch)) return false;
  if (args.dgate_up.defined()) {
    launch_gated<true, Output::gradient>(launch, args);
    return true;
  }
  if (supports_gated(args)) {
    launch_gated<false, Output::gated>(launch, args);
    return true;
  }
  args.transpose_b ? launch_lora<false, Output::result>(launch, args) : launch_lora<true, Output::result>(launch, args);
  if (args.gated.defined()) swiglu({.gate_up = args.c, .out = args.gated, .activation = args.activation});
  return true;
}

}  // namespace quench::cuda
