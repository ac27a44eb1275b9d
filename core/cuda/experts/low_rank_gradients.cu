// Both gradients of a low-rank update from one pass over dy, on tensor cores by mma.sync.
//
// A block takes some rows of some columns, 16 rows at a time, which cp.async brings kStages - 1 steps ahead. Each of
// its eight warps has some of the columns: it multiplies them with its part of b, which stays in registers, for dh,
// whose sums over the block's warps are then put together, and their transpose with h for db, whose sums stay in
// registers to the end. What the blocks have summed is added up in the order of blocks.

#include "core/ops/low_rank_gradients.h"

#include <algorithm>

#include "core/cuda/common/launch.h"
#include "core/cuda/experts/mma_tile.cuh"

namespace quench::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kStepRows = 16, kStages = 4;
// Columns of a warp times the rank: 64 registers of sums.
constexpr int kWarpSums = 2048;

template <int kRank>
struct Layout {
  static constexpr int kWarpColumns = kWarpSums / kRank, kColumns = kWarps * kWarpColumns;
  static constexpr int kTiles = kWarpColumns / 16, kRankTiles = kRank / 8;
  static constexpr int kRowBytes = kColumns * 2, kHiddenRowBytes = kRank * 2;
  static constexpr int kHiddenAt = kStepRows * kRowBytes, kStageBytes = kHiddenAt + kStepRows * kHiddenRowBytes;
  static constexpr int kPartsAt = kStages * kStageBytes, kSharedBytes = kPartsAt + kWarps * kStepRows * kRank * 4;
};

struct LowRankShape {
  std::int64_t n, m, dy_stride, h_stride;
  std::int64_t rows;  // of a block, a multiple of kStepRows
};

// A warp's part of b as right operands: [tile of 16 columns][tile of 8 ranks], two words each.
template <int kRank>
__device__ void load_b(std::uint32_t (&words)[Layout<kRank>::kTiles][Layout<kRank>::kRankTiles][2], const bfloat16* b,
                       std::int64_t first, std::int64_t m) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int tile = 0; tile < Layout<kRank>::kTiles; ++tile)
#pragma unroll
    for (int r = 0; r < Layout<kRank>::kRankTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::int64_t column = first + 16 * tile + 8 * half + lane % 4 * 2;  // m is even: two columns at once
        const bfloat16* at = b + column * kRank + 8 * r + lane / 4;
        const std::uint32_t low = column < m ? at[0].bits : 0, high = column < m ? at[kRank].bits : 0;
        words[tile][r][half] = low | high << 16;
      }
}

template <int kRank>
__device__ void queue_step(std::uint32_t stage, const bfloat16* dy, const bfloat16* h, const LowRankShape& s,
                           std::int64_t row, std::int64_t end, std::int64_t column) {
  using L = Layout<kRank>;
  constexpr int kPieces = L::kColumns / 8, kHiddenPieces = kRank / 8;
#pragma unroll
  for (int i = 0; i < kStepRows * kPieces / kThreads; ++i) {
    const int index = i * kThreads + static_cast<int>(threadIdx.x), line = index / kPieces, piece = index % kPieces;
    const std::int64_t at = column + 8 * piece;
    const bool valid = row + line < end && at < s.m;
    copy_async(stage + static_cast<std::uint32_t>(line * L::kRowBytes + (piece ^ (line & 7)) * 16),
               valid ? dy + (row + line) * s.dy_stride + at : dy, valid);
  }
  if (threadIdx.x < kStepRows * kHiddenPieces) {
    const int line = static_cast<int>(threadIdx.x) / kHiddenPieces,
              piece = static_cast<int>(threadIdx.x) % kHiddenPieces;
    const bool valid = row + line < end;
    copy_async(stage + static_cast<std::uint32_t>(L::kHiddenAt + line * L::kHiddenRowBytes + piece * 16),
               valid ? h + (row + line) * s.h_stride + 8 * piece : h, valid);
  }
}

// parts_of_dh: [blocks of columns, N, R]; parts_of_db: [blocks of rows, M, R].
template <int kRank>
__global__ __launch_bounds__(kThreads) void low_rank_gradients_kernel(const bfloat16* dy, const bfloat16* h,
                                                                      const bfloat16* b, float* parts_of_dh,
                                                                      float* parts_of_db, LowRankShape s) {
  using L = Layout<kRank>;
  extern __shared__ __align__(128) unsigned char memory[];
  const auto shared = static_cast<std::uint32_t>(__cvta_generic_to_shared(memory));
  auto* parts = reinterpret_cast<float*>(memory + L::kPartsAt);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int matrix = lane / 8, line = lane % 8;
  const std::int64_t column = std::int64_t{blockIdx.x} * L::kColumns, first = std::int64_t{blockIdx.y} * s.rows;
  const std::int64_t end = min(first + s.rows, s.n), steps = (end - first + kStepRows - 1) / kStepRows;
  const auto queue = [&](std::int64_t step) {
    if (step < steps)
      queue_step<kRank>(shared + static_cast<std::uint32_t>(step % kStages * L::kStageBytes), dy, h, s,
                        first + step * kStepRows, end, column);
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) queue(step);
  std::uint32_t of_b[L::kTiles][L::kRankTiles][2];
  load_b<kRank>(of_b, b, column + warp * L::kWarpColumns, s.m);
  float db[L::kTiles][L::kRankTiles][4] = {};
  for (std::int64_t step = 0; step < steps; ++step) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
    __syncthreads();  // the step's operands are there for all; all have read those of the step before, and its parts
    queue(step + kStages - 1);
    const std::uint32_t stage = shared + static_cast<std::uint32_t>(step % kStages * L::kStageBytes);
    // Of h as right operands: (rows 0, rank), (rows 8, rank), (rows 0, rank + 8), (rows 8, rank + 8).
    std::uint32_t of_h[L::kRankTiles / 2][4];
#pragma unroll
    for (int r = 0; r < L::kRankTiles / 2; ++r)
      load_matrices_transposed(
          of_h[r], stage + static_cast<std::uint32_t>(L::kHiddenAt + ((matrix & 1) * 8 + line) * L::kHiddenRowBytes +
                                                      (2 * r + (matrix >> 1)) * 16));
    float dh[L::kRankTiles][4] = {};
#pragma unroll
    for (int tile = 0; tile < L::kTiles; ++tile) {
      const int piece = (warp * L::kWarpColumns + 16 * tile) / 8;
      const auto at = [&](int row_half, int column_half) {
        const int row = 8 * row_half + line;
        return stage + static_cast<std::uint32_t>(row * L::kRowBytes + ((piece + column_half) ^ (row & 7)) * 16);
      };
      std::uint32_t plain[4], transposed[4];
      load_matrices(plain, at(matrix & 1, matrix >> 1));
      load_matrices_transposed(transposed, at(matrix >> 1, matrix & 1));
#pragma unroll
      for (int r = 0; r < L::kRankTiles; ++r) {
        multiply_add(dh[r], plain, of_b[tile][r][0], of_b[tile][r][1]);
        multiply_add(db[tile][r], transposed, of_h[r / 2][r % 2 * 2], of_h[r / 2][r % 2 * 2 + 1]);
      }
    }
#pragma unroll
    for (int r = 0; r < L::kRankTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float* to = parts + (warp * kStepRows + lane / 4 + 8 * half) * kRank + 8 * r + lane % 4 * 2;
        to[0] = dh[r][2 * half];
        to[1] = dh[r][2 * half + 1];
      }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kStepRows * kRank; i += kThreads) {
      float sum = 0.0f;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += parts[w * kStepRows * kRank + i];
      const std::int64_t row = first + step * kStepRows + i / kRank;
      if (row < end) parts_of_dh[(std::int64_t{blockIdx.x} * s.n + row) * kRank + i % kRank] = sum;
    }
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
  float* out = parts_of_db + std::int64_t{blockIdx.y} * s.m * kRank;
#pragma unroll
  for (int tile = 0; tile < L::kTiles; ++tile)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = column + warp * L::kWarpColumns + 16 * tile + lane / 4 + 8 * half;
      if (row >= s.m) continue;
#pragma unroll
      for (int r = 0; r < L::kRankTiles; ++r)
        *reinterpret_cast<float2*>(out + row * kRank + 8 * r + lane % 4 * 2) =
            make_float2(db[tile][r][2 * half], db[tile][r][2 * half + 1]);
    }
}

template <class T>
__global__ __launch_bounds__(kThreads) void add_parts_kernel(const float* parts, int count, std::int64_t elements,
                                                             int rank, float scale, bool accumulate, T* out,
                                                             std::int64_t stride) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= elements) return;
  float sum = 0.0f;
  for (int part = 0; part < count; ++part) sum += parts[part * elements + i];
  T& to = out[i / rank * stride + i % rank];
  sum *= scale;
  to = from_float<T>(accumulate ? sum + to_float(to) : sum);
}

void add_parts(const OpLaunch& launch, const Tensor& parts, float scale, bool accumulate, const Tensor& out) {
  const std::int64_t elements = out.numel();
  dispatch<float, bfloat16>(out.dtype(), "low_rank_gradients", [&]<class T>() {
    launch(add_parts_kernel<T>, static_cast<unsigned>((elements + kThreads - 1) / kThreads), kThreads, 0,
           parts.data<float>(), static_cast<int>(parts.size(0)), elements, static_cast<int>(out.size(1)), scale,
           accumulate, out.data<T>(), out.stride(0));
  });
}

template <int kRank>
void launch_rank(const OpLaunch& launch, const LowRankGradientsArgs& args) {
  using L = Layout<kRank>;
  const std::int64_t n = args.dy.size(0), m = args.dy.size(1);
  const std::int64_t column_blocks = (m + L::kColumns - 1) / L::kColumns, steps = (n + kStepRows - 1) / kStepRows;
  const std::int64_t wanted = std::clamp<std::int64_t>(multiprocessor_count(launch.device()) / column_blocks, 1, steps);
  const std::int64_t rows = (steps + wanted - 1) / wanted * kStepRows, row_blocks = (n + rows - 1) / rows;
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor of_dh = Tensor::empty({column_blocks, n, kRank}, DType::f32, args.dy.device()),
               of_db = Tensor::empty({row_blocks, m, kRank}, DType::f32, args.dy.device());
  launch(low_rank_gradients_kernel<kRank>,
         dim3(static_cast<unsigned>(column_blocks), static_cast<unsigned>(row_blocks)), kThreads,
         static_cast<std::size_t>(L::kSharedBytes), args.dy.data<bfloat16>(), args.h.data<bfloat16>(),
         args.b.data<bfloat16>(), of_dh.data<float>(), of_db.data<float>(),
         LowRankShape{n, m, args.dy.stride(0), args.h.stride(0), rows});
  add_parts(launch, of_dh, args.scale, false, args.dh);
  add_parts(launch, of_db, args.scale, args.accumulate, args.db);
}

// Rows of whole pieces of 16 bytes.
bool has_pieces(const Tensor& t) {
  return t.dtype() == DType::bf16 && t.size(1) % 8 == 0 && t.stride(0) % 8 == 0 &&
         reinterpret_cast<std::uintptr_t>(t.raw_data()) % 16 == 0;
}

void low_rank_gradients_cuda(const LowRankGradientsArgs& args) {
  constexpr std::int64_t kFewestRows = 512;
  const OpLaunch launch("low_rank_gradients", {&args.dy, &args.h, &args.b, &args.dh, &args.db});
  if (args.dy.size(0) >= kFewestRows && args.dy.size(1) > 0 && has_pieces(args.dy) && has_pieces(args.h)) {
    switch (args.b.size(1)) {
      case 16: return launch_rank<16>(launch, args);
      case 32: return launch_rank<32>(launch, args);
      case 64: return launch_rank<64>(launch, args);
      default: break;
    }
  }
  low_rank_gradients_by_products(args);
}

QUENCH_CUDA_KERNEL(low_rank_gradients_slot, low_rank_gradients_cuda);

}  // namespace
}  // namespace quench::cuda
