// LoRA backward: both adapter gradients in one pass over dY, by mma.sync. A CTA has a slab of columns and a range of
// rows of dY, kStepRows at a time in shared memory. Each step feeds two GEMMs: dY B, reduced over the CTA's columns and
// stored per slab, and dY^T hidden, accumulated in registers and stored per row range. A second kernel sums slabs and
// ranges in order.

#include "core/ops/adapters/adapter_gradients.h"

#include <algorithm>

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pack.cuh"
#include "core/cuda/common/pdl.cuh"
#include "core/cuda/sm80/mma.cuh"

namespace quench::cuda {
namespace {

constexpr int kStepRows = 32, kMostPieces = 4;
constexpr int kLineColumns = 64, kLineBytes = kLineColumns * 2;  // dY line
constexpr std::int64_t kFewestRows = 256;

template <int kPieceRank, int kBlockWarps, int kColumnsOfWarp, int kPipelineStages, int kBlocks>
struct Pass {
  static constexpr int kRank = kPieceRank, kWarps = kBlockWarps, kWarpColumns = kColumnsOfWarp;
  static constexpr int kStages = kPipelineStages;
  static constexpr int kBlocksPerSm = kBlocks;
  static constexpr int kTiles = kRank / 8, kColumnTiles = kWarpColumns / 16, kRowTiles = kStepRows / 16;  // MMA tiles
  static constexpr int kThreads = 32 * kWarps, kSlab = kWarps * kWarpColumns;
  static constexpr int kStepBytes = kStepRows * kSlab * 2, kHiddenBytes = kStepRows * kRank * 2;
  static constexpr int kStageBytes = kStepBytes + kHiddenBytes;
  static constexpr int kSumBytes = kWarps * kStepRows * kRank * 4;
  static constexpr int kSharedBytes = kStages * kStageBytes + kSumBytes;
};

struct PieceView {
  const bfloat16 *dy, *b, *hidden;
  int columns, first_slab;
  float* of_rows;     // [slabs][rows][rank]
  float* of_columns;  // [ranges][columns][rank]
};
struct PassView {
  PieceView pieces[kMostPieces];
  int count, range_steps;
  std::int64_t rows, dy_stride, hidden_stride;
};

// Zero-filled out of bounds.
template <class P>
__device__ void load_step(std::uint32_t stage, const PieceView& piece, const PassView& view, std::int64_t row,
                          int column) {
  constexpr int kUnits = P::kSlab / 8, kLineUnits = kLineColumns / 8;
#pragma unroll
  for (int i = 0; i < kStepRows * kUnits / P::kThreads; ++i) {
    const int index = i * P::kThreads + static_cast<int>(threadIdx.x), r = index / kUnits, unit = index % kUnits;
    const bool valid = row + r < view.rows && column + unit * 8 < piece.columns;
    const bfloat16* from = valid ? piece.dy + (row + r) * view.dy_stride + column + unit * 8 : piece.dy;
    const int at = (unit / kLineUnits * kStepRows + r) * kLineBytes + ((unit % kLineUnits) ^ (r % 8)) * 16;
    cp_async_16(stage + static_cast<std::uint32_t>(at), from, valid);
  }
  constexpr int kHiddenUnits = P::kRank / 8;
  for (int index = static_cast<int>(threadIdx.x); index < kStepRows * kHiddenUnits; index += P::kThreads) {
    const int r = index / kHiddenUnits, unit = index % kHiddenUnits;
    const bool valid = row + r < view.rows;
    const bfloat16* from = valid ? piece.hidden + (row + r) * view.hidden_stride + unit * 8 : piece.hidden;
    cp_async_16(stage + static_cast<std::uint32_t>(P::kStepBytes + index * 16), from, valid);
  }
}

// cp.async of the slab's rows.
template <class P>
__device__ void load_b(std::uint32_t stage, const PieceView& piece, int column) {
  static_assert(P::kSlab * P::kRank * 2 <= P::kStageBytes);
  constexpr int kUnits = P::kRank / 8;
  for (int index = static_cast<int>(threadIdx.x); index < P::kSlab * kUnits; index += P::kThreads) {
    const bool valid = column + index / kUnits < piece.columns;
    cp_async_16(stage + static_cast<std::uint32_t>(index * 16),
                valid ? piece.b + std::int64_t{column} * P::kRank + index * 8 : piece.b, valid);
  }
}

// ldmatrix offset of a lane, 16x16 block at row 0 of a line. `row_bit`: bit of the matrix index for the row half; the
// other selects the column half.
__device__ std::uint32_t piece_offset(int first_line, int row_bit) {
  const int lane = static_cast<int>(threadIdx.x) % 32, matrix = lane / 8, row = lane % 8;
  const int row_half = matrix >> row_bit & 1, column_half = matrix >> (1 - row_bit) & 1;
  return static_cast<std::uint32_t>((first_line * kStepRows + row_half * 8 + row) * kLineBytes +
                                    (column_half ^ row) * 16);
}
__device__ std::uint32_t piece_address(std::uint32_t first, int r, int i) {
  constexpr int kLinePieces = kLineColumns / 16;
  return (first ^ static_cast<std::uint32_t>(i % kLinePieces * 32)) +
         static_cast<std::uint32_t>((i / kLinePieces * kStepRows + r * 16) * kLineBytes);
}

// A warp's fragments of B: kColumnTiles tiles of 16 rows.
template <class P>
using FragmentsB = std::uint32_t[P::kColumnTiles][P::kTiles][2];
// Accumulators of dY B, a tile of 16 rows of dY each, and of dY^T hidden, 16 columns of dY each.
template <class P>
using RowSums = float[P::kRowTiles][P::kTiles][4];
template <class P>
using ColumnSums = float[P::kColumnTiles][P::kTiles][4];

template <class P>
__device__ __forceinline__ void load_fragments_b(FragmentsB<P>& b, std::uint32_t stage) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < P::kColumnTiles; ++i)
#pragma unroll
    for (int n = 0; n < P::kTiles; ++n)
      ldmatrix_x4_trans(b[i][n], stage + static_cast<std::uint32_t>(
                                             ((warp * P::kWarpColumns + i * 16 + lane % 16) * P::kRank + n * 8) * 2));
}

// Both GEMMs of a step. Offsets: piece_offset() of dY by rows and by columns.
template <class P>
__device__ __forceinline__ void mma_step(RowSums<P>& of_rows, ColumnSums<P>& of_columns, const FragmentsB<P>& b,
                                         std::uint32_t stage, std::uint32_t rows_offset, std::uint32_t columns_offset) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int r = 0; r < P::kRowTiles; ++r) {
    std::uint32_t hidden[P::kTiles][2];
#pragma unroll
    for (int n = 0; n < P::kTiles; ++n)
      ldmatrix_x4_trans(
          hidden[n], stage + static_cast<std::uint32_t>(P::kStepBytes + ((r * 16 + lane % 16) * P::kRank + n * 8) * 2));
#pragma unroll
    for (int i = 0; i < P::kColumnTiles; ++i) {
      std::uint32_t words[4];
      ldmatrix_x4(words, piece_address(stage + rows_offset, r, i));
#pragma unroll
      for (int n = 0; n < P::kTiles; ++n) mma_m16n8k16_bf16(of_rows[r][n], words, b[i][n][0], b[i][n][1]);
      ldmatrix_x4_trans(words, piece_address(stage + columns_offset, r, i));
#pragma unroll
      for (int n = 0; n < P::kTiles; ++n) mma_m16n8k16_bf16(of_columns[i][n], words, hidden[n][0], hidden[n][1]);
    }
  }
}

// Sums over the CTA's warps, in order, through `sums` in shared memory. CTA collective; `out`: the step's first row.
template <class P>
__device__ __forceinline__ void reduce_rows(float* out, const RowSums<P>& of_rows, float* sums, std::int64_t rows) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int r = 0; r < P::kRowTiles; ++r)
#pragma unroll
    for (int n = 0; n < P::kTiles; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<float2*>(sums + (warp * kStepRows + r * 16 + half * 8 + g) * P::kRank + n * 8 + 2 * t) =
            make_float2(of_rows[r][n][2 * half], of_rows[r][n][2 * half + 1]);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x) * 4; i < kStepRows * P::kRank; i += P::kThreads * 4) {
    float4 sum = *reinterpret_cast<const float4*>(sums + i);
#pragma unroll
    for (int w = 1; w < P::kWarps; ++w) {
      const float4 part = *reinterpret_cast<const float4*>(sums + w * kStepRows * P::kRank + i);
      sum = make_float4(sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w);
    }
    if (i / P::kRank < rows) *reinterpret_cast<float4*>(out + i) = sum;
  }
}

// `column`: the warp's first.
template <class P>
__device__ __forceinline__ void store_columns(float* out, const ColumnSums<P>& of_columns, int column, int columns) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < P::kColumnTiles; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = column + i * 16 + half * 8 + g;
      if (row >= columns) continue;
#pragma unroll
      for (int n = 0; n < P::kTiles; ++n)
        *reinterpret_cast<float2*>(out + std::int64_t{row} * P::kRank + n * 8 + 2 * t) =
            make_float2(of_columns[i][n][2 * half], of_columns[i][n][2 * half + 1]);
    }
}

template <class P>
__global__ __launch_bounds__(P::kThreads,
                             P::kBlocksPerSm) void adapter_pass_kernel(const __grid_constant__ PassView view) {
  extern __shared__ __align__(128) unsigned char memory[];
  constexpr int kStages = P::kStages;
  int number = 0;
  while (number + 1 < view.count && static_cast<int>(blockIdx.x) >= view.pieces[number + 1].first_slab) ++number;
  const PieceView& piece = view.pieces[number];
  const int slab = static_cast<int>(blockIdx.x) - piece.first_slab, column = slab * P::kSlab;
  const int warp_column = static_cast<int>(threadIdx.x) / 32 * P::kWarpColumns;
  const auto steps = static_cast<int>((view.rows + kStepRows - 1) / kStepRows);
  const int first = static_cast<int>(blockIdx.y) * view.range_steps, end = min(first + view.range_steps, steps);
  const auto shared = static_cast<std::uint32_t>(__cvta_generic_to_shared(memory));
  const auto stage_of = [&](int step) {
    return shared + static_cast<std::uint32_t>((step - first) % kStages * P::kStageBytes);
  };
  const auto fetch = [&](int step) {
    if (step < end) load_step<P>(stage_of(step), piece, view, std::int64_t{step} * kStepRows, column);
    cp_async_commit();
  };
  const std::uint32_t b_stage = stage_of(first + kStages - 1);  // the last, still unused
  load_b<P>(b_stage, piece, column);
  cp_async_commit();
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) fetch(first + i);
  FragmentsB<P> b;
  cp_async_wait<kStages - 1>();
  __syncthreads();
  load_fragments_b<P>(b, b_stage);

  const std::uint32_t rows_offset = piece_offset(warp_column / kLineColumns, 0);
  const std::uint32_t columns_offset = piece_offset(warp_column / kLineColumns, 1);
  ColumnSums<P> of_columns = {};
  for (int step = first; step < end; ++step) {
    cp_async_wait<kStages - 2>();
    __syncthreads();  // step loaded, previous one consumed
    fetch(step + kStages - 1);
    RowSums<P> of_rows = {};
    mma_step<P>(of_rows, of_columns, b, stage_of(step), rows_offset, columns_offset);
    const std::int64_t row = std::int64_t{step} * kStepRows;
    reduce_rows<P>(piece.of_rows + (slab * view.rows + row) * P::kRank, of_rows,
                   reinterpret_cast<float*>(memory + kStages * P::kStageBytes), view.rows - row);
  }
  pdl_launch_dependents();
  store_columns<P>(piece.of_columns + std::int64_t{blockIdx.y} * piece.columns * P::kRank, of_columns,
                   column + warp_column, piece.columns);
}

// out (+)= scale * sum of `count` matrices, four elements per thread and slice.
struct SumJob {
  const float* parts;  // [count][quads][4]
  std::int64_t quads;
  int count;
  float scale;
  void* out;
  std::int64_t out_stride;  // in elements
  bool accumulate, is_f32;
};
struct SumJobs {
  SumJob jobs[2 * kMostPieces];
};
constexpr int kSumQuads = 32, kSumSlices = 8;

template <class T>
__device__ void store_quad(const SumJob& job, std::int64_t at, float4 sum) {
  T* out = static_cast<T*>(job.out) + at;
  const float values[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
  for (int i = 0; i < 4; ++i)
    out[i] = from_float<T>(job.accumulate ? fmaf(job.scale, values[i], to_float(out[i])) : job.scale * values[i]);
}

template <int kRank>
__global__ __launch_bounds__(kSumQuads* kSumSlices) void adapter_sums_kernel(const __grid_constant__ SumJobs all) {
  __shared__ float4 slices[kSumSlices][kSumQuads];
  const SumJob& job = all.jobs[blockIdx.y];
  pdl_sync();
  if (std::int64_t{blockIdx.x} * kSumQuads >= job.quads) return;
  const int lane = static_cast<int>(threadIdx.x) % kSumQuads, slice = static_cast<int>(threadIdx.x) / kSumQuads;
  const std::int64_t quad = std::int64_t{blockIdx.x} * kSumQuads + lane;
  const auto add = [](float4& sum, const float4& v) {
    sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
  };
  float4 sum = make_float4(0, 0, 0, 0);
  if (quad < job.quads)
#pragma unroll 4
    for (int i = slice; i < job.count; i += kSumSlices)
      add(sum, reinterpret_cast<const float4*>(job.parts)[i * job.quads + quad]);
  slices[slice][lane] = sum;
  __syncthreads();
  if (slice != 0 || quad >= job.quads) return;
  for (int i = 1; i < kSumSlices; ++i) add(sum, slices[i][lane]);
  constexpr int kRowQuads = kRank / 4;
  const std::int64_t at = quad / kRowQuads * job.out_stride + quad % kRowQuads * 4;
  job.is_f32 ? store_quad<float>(job, at, sum) : store_quad<bfloat16>(job, at, sum);
}

template <class P>
void launch_pass(const OpLaunch& launch, const AdapterGradientsArgs& args) {
  const std::int64_t rows = args.dy.size(0), steps = (rows + kStepRows - 1) / kStepRows;
  const auto slabs_of = [](const Tensor& b) { return (b.size(0) + P::kSlab - 1) / P::kSlab; };
  std::int64_t slabs = 0, columns = 0;
  for (const AdapterGradientPiece& piece : args.pieces) {
    slabs += slabs_of(piece.b);
    columns += piece.b.size(0);
  }
  const std::int64_t places = std::int64_t{sm_count(launch.device())} * P::kBlocksPerSm;
  const std::int64_t range_steps =
      (steps + std::max<std::int64_t>(1, places / slabs) - 1) / std::max<std::int64_t>(1, places / slabs);
  const std::int64_t ranges = (steps + range_steps - 1) / range_steps;

  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor of_rows = Tensor::empty({slabs, rows, P::kRank}, DType::f32, launch.device());
  const Tensor of_columns = Tensor::empty({ranges, columns, P::kRank}, DType::f32, launch.device());
  PassView view{.pieces = {},
                .count = static_cast<int>(args.pieces.size()),
                .range_steps = static_cast<int>(range_steps),
                .rows = rows,
                .dy_stride = args.dy.stride(0),
                .hidden_stride = args.hidden.stride(0)};
  SumJobs sums{};
  std::int64_t slab = 0, column = 0, most_quads = 0;
  int jobs = 0;
  for (std::size_t i = 0; i < args.pieces.size(); ++i) {
    const AdapterGradientPiece& piece = args.pieces[i];
    const std::int64_t n = piece.b.size(0);
    PieceView& to = view.pieces[i];
    to = {.dy = args.dy.data<bfloat16>() + piece.column,
          .b = piece.b.data<bfloat16>(),
          .hidden = args.hidden.data<bfloat16>() + piece.rank_begin,
          .columns = static_cast<int>(n),
          .first_slab = static_cast<int>(slab),
          .of_rows = of_rows.data<float>() + slab * rows * P::kRank,
          .of_columns = of_columns.data<float>() + column * ranges * P::kRank};
    sums.jobs[jobs++] = {.parts = to.of_rows,
                         .quads = rows * P::kRank / 4,
                         .count = static_cast<int>(slabs_of(piece.b)),
                         .scale = piece.scale,
                         .out = args.dhidden.data<bfloat16>() + piece.rank_begin,
                         .out_stride = args.dhidden.stride(0),
                         .accumulate = false,
                         .is_f32 = false};
    sums.jobs[jobs++] = {.parts = to.of_columns,
                         .quads = n * P::kRank / 4,
                         .count = static_cast<int>(ranges),
                         .scale = piece.gradient_scale,
                         .out = piece.db.raw_data(),
                         .out_stride = P::kRank,
                         .accumulate = piece.accumulate,
                         .is_f32 = piece.db.dtype() == DType::f32};
    most_quads = std::max({most_quads, rows * P::kRank / 4, n * P::kRank / 4});
    slab += slabs_of(piece.b);
    column += n;
  }
  launch(adapter_pass_kernel<P>, dim3(static_cast<unsigned>(slabs), static_cast<unsigned>(ranges)), P::kThreads,
         P::kSharedBytes, view);
  constexpr std::int64_t kFewRows = 1;  // PDL for any row count
  launch.early(kFewRows, adapter_sums_kernel<P::kRank>,
               dim3(static_cast<unsigned>((most_quads + kSumQuads - 1) / kSumQuads), static_cast<unsigned>(jobs)),
               kSumQuads * kSumSlices, 0, sums);
}

bool has_pass(const AdapterGradientsArgs& args, const OpLaunch& launch) {
  const auto is_wide = [](const Tensor& t, std::int64_t first) {
    return t.dtype() == DType::bf16 &&
           rows_are_wide<bfloat16>(t.data<bfloat16>() + first, t.size(0) > 1 ? t.stride(0) : 8, 8);
  };
  return args.dy.dtype() == DType::bf16 && args.dy.size(0) >= kFewestRows &&
         args.pieces.size() <= std::size_t{kMostPieces} && compute_capability(launch.device()) >= 80 &&
         std::ranges::all_of(args.pieces, [&](const AdapterGradientPiece& piece) {
           return piece.db.defined() && piece.b.numel() > 0 && piece.b.size(0) % 8 == 0 &&
                  piece.b.size(1) == args.pieces.front().b.size(1) && is_wide(args.dy, piece.column) &&
                  is_wide(args.hidden, piece.rank_begin);
         });
}

// Three stages for two CTAs per SM, or two for one where shared memory is smaller.
template <int kRank>
void launch_fitting_pass(const OpLaunch& launch, const AdapterGradientsArgs& args) {
  using Large = Pass<kRank, 4, 128, 3, 2>;
  using Small = Pass<kRank, 4, 128, 2, 1>;
  static_assert(Small::kSharedBytes <= kLeastSharedBytes);
  if (Large::kSharedBytes <= max_shared_bytes(launch.device()))
    launch_pass<Large>(launch, args);
  else
    launch_pass<Small>(launch, args);
}

void adapter_gradients_cuda(const AdapterGradientsArgs& args) {
  const OpLaunch launch("adapter_gradients", {&args.dy, &args.hidden, &args.dhidden});
  if (!has_pass(args, launch)) return adapter_gradients_in_products(args);
  // Larger ranks: partial sums would cost a second read of dY.
  switch (args.pieces.front().b.size(1)) {
    case 8: return launch_fitting_pass<8>(launch, args);
    case 16: return launch_fitting_pass<16>(launch, args);
    default: return adapter_gradients_in_products(args);
  }
}

QUENCH_CUDA_KERNEL(adapter_gradients_slot, adapter_gradients_cuda);

}  // namespace
}  // namespace quench::cuda
