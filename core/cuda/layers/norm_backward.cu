// RMSNorm backward. With xhat = x rstd and u = dy (weight + offset): dx = rstd (u - xhat mean(u xhat)) + dsum, dweight
// = sum over rows of dy xhat. A row stays in registers between the dot product and dx; with quantization outputs, until
// the row amax is known. Persistent CTAs accumulate dweight in registers; partial sums are added in a fixed order. If
// shared memory allows, the next row is prefetched by cp.async, each thread its own elements.

#include <algorithm>
#include <cstddef>

#include "core/cuda/common/launch.h"
#include "core/cuda/common/partial_sum.cuh"
#include "core/cuda/layers/norm_backward_rows.cuh"

namespace quench::cuda {
namespace {

template <int kGroup, int kVectors>
inline constexpr int kResidentBlocks = (kVectors > 2 ? 512 : 768) / kNormBlock<kGroup>;

// Column amax; after the last row, partial dweight of CTAs with several rows.
template <class T, int kGroup, int kVectors, int kColumns, QuantOutputParts kParts>
inline constexpr std::size_t kSharedBytes = std::max(
    {kParts == QuantOutputParts::rows ? sizeof(Packed<T>) * kNormBlock<kGroup> * kVectors : 0,
     kNormBlock<kGroup> > kGroup ? sizeof(float) * (kNormBlock<kGroup> / kGroup) * kColumns : 0, sizeof(Packed<T>)});

// Memory bound: 8 H bytes per row in bf16 (6 H without dsum), 2 H for a recomputed y, H for float8 values. Summation
// order is independent of the quantization outputs, which require bf16; QuantOutputParts::rows: one CTA or warp per
// row. kAhead: prefetch to dynamic shared memory.
template <class T, int kGroup, int kVectors, QuantOutputParts kParts, bool kAhead>
__global__ __launch_bounds__(kNormBlock<kGroup>,
                             kResidentBlocks<kGroup, kVectors>) void norm_backward_kernel(BackwardRows<T> args) {
  constexpr int kWidth = kVectorWidth<T>, kColumns = kGroup * kVectors * kWidth, kRows = kNormBlock<kGroup> / kGroup;
  static_assert(kParts != QuantOutputParts::rows || kRows == 1 || kGroup == 32);
  __shared__ GroupScratch scratch;
  int turn = 0;
  const int lane = static_cast<int>(threadIdx.x) % kGroup, vectors = args.vectors;
  __shared__ BlockMax::Scratch max_scratch;
  __shared__ alignas(16) std::byte memory[kSharedBytes<T, kGroup, kVectors, kColumns, kParts>];
  auto* const columns = reinterpret_cast<Packed<T>*>(memory);
  Packed<T>* const own_columns = columns + threadIdx.x / kGroup * kGroup * kVectors + lane;  // thread's own
  BlockMax block_max(max_scratch);
  RowQuantOutputs<kParts, kRows == 1 ? RowOwner::block : RowOwner::warp> quant_outputs(args.quant_outputs, block_max);
  if constexpr (kParts == QuantOutputParts::rows)
    for (int k = 0; k < kVectors; ++k) own_columns[k * kGroup] = {};

  extern __shared__ uint4 dynamic[];
  __shared__ float rstd_ahead[kAhead ? kBackwardStages : 1][kNormBlock<kGroup>];
  RowPrefetch<T, kGroup, kVectors> prefetch(args, reinterpret_cast<Packed<T>*>(dynamic), rstd_ahead);
  if constexpr (kAhead) prefetch.fetch(blockIdx.x * kRows + threadIdx.x / kGroup, 0);

  Packed<T> weight[kVectors];
  Vector<float, kWidth> dweight[kVectors] = {};
  load_weight<kGroup>(weight, args.weight, lane, vectors);

  // Uniform trip count: group_sum has barriers and shuffles.
  for (std::uint32_t first = blockIdx.x * kRows; first < args.rows; first += gridDim.x * kRows) {
    const std::uint32_t number = first + threadIdx.x / kGroup;
    BackwardRow<T, kGroup, kVectors, kAhead> row(args, number);
    if constexpr (kParts == QuantOutputParts::rows)
      for (Packed<T>& piece : weight) keep_packed(piece);
    if constexpr (kAhead)
      row.load(prefetch, number + gridDim.x * kRows);
    else
      row.load();
    const float dot = group_sum<kGroup>(row.dot(weight, dweight), scratch, turn);
    row.store_dx(weight, dot * row.rstd * row.rstd / static_cast<float>(args.width), quant_outputs, own_columns);
    const float scale = quant_outputs.finish_row(row.row, row.end > 0);
    if (!quant_outputs.has_codes()) continue;
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
      if (lane + k * kGroup < row.end)
        quant_outputs.encode(std::int64_t{row.row} * vectors + lane + k * kGroup, row.gradient[k], scale);
  }
  quant_outputs.template finish<kRows, kGroup * kVectors>(vectors, columns);
  if (args.partial == nullptr) return;

  float* partial = args.partial + blockIdx.x * args.width;
  if constexpr (kRows == 1) {
    store_dweight<kGroup>(partial, dweight, vectors);
  } else {
    if constexpr (kParts != QuantOutputParts::none) __syncthreads();  // column amax complete
    reduce_dweight<kGroup, kRows>(partial, dweight, reinterpret_cast<float(&)[kRows][kColumns]>(memory), args.width);
  }
}

constexpr int kAnyThreads = 256;

// Any width and alignment; operands are read twice, the second time from cache.
template <class T>
__global__ __launch_bounds__(kAnyThreads) void norm_backward_any_kernel(BackwardRows<T> args) {
  __shared__ GroupScratch scratch;
  int turn = 0;
  for (std::uint32_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const RowPosition at = args.numbering(row);
    const T* dy = args.dy[at];
    const T* x = args.x[at];
    const T* dsum = args.dsum.base != nullptr ? args.dsum[at] : nullptr;
    T* dx = args.dx[at];
    const float rstd = args.rstd[row];
    float dot = 0;
    for (std::int64_t i = threadIdx.x; i < args.width; i += kAnyThreads)
      dot = fmaf(to_float(dy[i]) * (to_float(args.weight[i]) + args.weight_offset), to_float(x[i]), dot);
    const float mean = group_sum<kAnyThreads>(dot, scratch, turn) * rstd * rstd / static_cast<float>(args.width);
    for (std::int64_t i = threadIdx.x; i < args.width; i += kAnyThreads) {
      float result =
          fmaf(-to_float(x[i]), mean, to_float(dy[i]) * (to_float(args.weight[i]) + args.weight_offset)) * rstd;
      if (dsum != nullptr) result += to_float(dsum[i]);
      if (args.y.base != nullptr) args.y[at][i] = normalised<T>(x[i], rstd, args.weight[i], args);
      dx[i] = from_float<T>(result);
    }
  }
}

constexpr int kColumnLanes = 32, kColumnSlices = 8;

// Any width and alignment: a CTA sums 32 columns over rows congruent to its y. Runs before dx, which may alias dy, is
// written.
template <class T>
__global__ __launch_bounds__(kColumnLanes* kColumnSlices) void norm_dweight_any_kernel(BackwardRows<T> args) {
  __shared__ float shares[kColumnSlices][kColumnLanes];
  const std::int64_t column = std::int64_t{blockIdx.x} * kColumnLanes + threadIdx.x;
  float share = 0;
  if (column < args.width)
    for (std::uint32_t row = blockIdx.y * kColumnSlices + threadIdx.y; row < args.rows;
         row += gridDim.y * kColumnSlices) {
      const RowPosition at = args.numbering(row);
      const float xhat = to_float(args.x[at][column]) * args.rstd[row];
      share = fmaf(to_float(args.dy[at][column]), args.f32_weight ? xhat : rounded<T>(xhat), share);
    }
  shares[threadIdx.y][threadIdx.x] = share;
  __syncthreads();
  if (threadIdx.y != 0 || column >= args.width) return;
  float total = 0;
#pragma unroll
  for (int slice = 0; slice < kColumnSlices; ++slice) total += shares[slice][threadIdx.x];
  args.partial[blockIdx.y * args.width + column] = total;
}

// Both launchers return the partial dweight.
template <class T>
Tensor launch_any(const OpLaunch& launch, BackwardRows<T> args, bool dweight_wanted) {
  Tensor partial;
  if (dweight_wanted) {
    const std::int64_t columns = (args.width + kColumnLanes - 1) / kColumnLanes;
    const std::int64_t parts = std::clamp<std::int64_t>(4 * sm_count(launch.device()) / columns, 1,
                                                        (args.rows + kColumnSlices - 1) / kColumnSlices);
    partial = Tensor::empty(Shape{parts, args.width}, DType::f32, launch.device());
    args.partial = partial.data<float>();
    launch(norm_dweight_any_kernel<T>, dim3(static_cast<unsigned>(columns), static_cast<unsigned>(parts)),
           dim3(kColumnLanes, kColumnSlices), 0, args);
  }
  launch(norm_backward_any_kernel<T>, strided_grid(launch.device(), args.rows, 1), kAnyThreads, 0, args);
  return partial;
}

template <class T, QuantOutputParts kParts>
Tensor launch_backward(const OpLaunch& launch, BackwardRows<T> args, bool dweight_wanted) {
  const std::int64_t vectors = args.width / kVectorWidth<T>;
  const auto run = [&]<int kGroup, int kVectors>() {
    constexpr int kThreads = kNormBlock<kGroup>;
    const unsigned blocks =
        strided_grid(launch.device(), args.rows, kThreads / kGroup, kResidentBlocks<kGroup, kVectors>);
    Tensor partial;
    if (dweight_wanted) {
      partial = Tensor::empty(Shape{std::int64_t{blocks}, args.width}, DType::f32, launch.device());
      args.partial = partial.data<float>();
    }
    if constexpr (kParts == QuantOutputParts::rows && kGroup > 32) {
      // CTAs per SM determine the summation order of dweight.
      constexpr int kReserved = 1024;  // system-reserved shared memory per CTA
      constexpr std::size_t kStatic = kSharedBytes<T, kGroup, kVectors, kGroup * kVectors * kVectorWidth<T>, kParts> +
                                      sizeof(GroupScratch) + sizeof(BlockMax::Scratch) +
                                      kBackwardStages * kThreads * sizeof(float) + kReserved;
      const std::size_t shared =
          sizeof(Packed<T>) * kBackwardStages * 3 * static_cast<std::size_t>(vectors) * kThreads / kGroup;
      if (kResidentBlocks<kGroup, kVectors> * (shared + kStatic) <=
          static_cast<std::size_t>(max_shared_bytes(launch.device()) + kReserved)) {
        launch(norm_backward_kernel<T, kGroup, kVectors, kParts, true>, blocks, kThreads, shared, args);
        return partial;
      }
    }
    launch(norm_backward_kernel<T, kGroup, kVectors, kParts, false>, blocks, kThreads, 0, args);
    return partial;
  };
  if constexpr (kParts != QuantOutputParts::rows) {
    if (vectors <= 8) return run.template operator()<8, 1>();
    if (vectors <= 16) return run.template operator()<16, 1>();
    if (vectors <= 32) return run.template operator()<32, 1>();
  }
  if (vectors <= 128) return run.template operator()<32, 4>();
  if (vectors <= 256) return run.template operator()<128, 2>();
  if (vectors <= 512) return run.template operator()<256, 2>();
  if (vectors <= 1024) return run.template operator()<256, 4>();
  return run.template operator()<512, 4>();
}

// Parts fused for these operands; none: fill_quant_outputs.
template <class T>
QuantOutputParts fused_parts(const BackwardRows<T>& args, const QuantOutputs& quant_outputs) {
  const std::int64_t vectors = args.width / kVectorWidth<T>;
  const QuantOutputParts parts = parts_of(quant_outputs);
  if (!std::is_same_v<T, bfloat16> || !args.wide() || vectors > 2048 || quant_outputs.has_codes())
    return QuantOutputParts::none;
  if (parts == QuantOutputParts::rows && (vectors <= 32 || !args.quant_outputs.wide())) return QuantOutputParts::none;
  return parts;
}

void rms_norm_backward(const RmsNormBackwardArgs& args) {
  const OpLaunch launch("rms_norm_backward",
                        {&args.dy, &args.x, &args.weight, &args.rstd, &args.dsum, &args.dx, &args.dweight, &args.y});
  check_row_count("rms_norm_backward", args.rstd.numel());
  const MemoryScope scope(MemoryCategory::workspace);
  const bool dweight_wanted = args.dweight.defined();
  QuantOutputParts fused = QuantOutputParts::none;
  const Tensor partial = dispatch<float, bfloat16>(args.x.dtype(), "rms_norm_backward", [&]<class T>() {
    const BackwardRows<T> rows(args);
    if (!rows.wide() || rows.width / kVectorWidth < T >> 2048) return launch_any(launch, rows, dweight_wanted);
    fused = fused_parts(rows, args.quant_outputs);
    if constexpr (std::is_same_v<T, bfloat16>) {
      if (fused == QuantOutputParts::amax)
        return launch_backward<T, QuantOutputParts::amax>(launch, rows, dweight_wanted);
      if (fused == QuantOutputParts::rows)
        return launch_backward<T, QuantOutputParts::rows>(launch, rows, dweight_wanted);
    }
    return launch_backward<T, QuantOutputParts::none>(launch, rows, dweight_wanted);
  });
  if (partial.defined()) sum_partial_rows(launch, partial, args.dweight, args.accumulate_dweight);
  if (fused == QuantOutputParts::none) fill_quant_outputs(args.quant_outputs, args.dx);
}

QUENCH_CUDA_KERNEL(rms_norm_backward_slot, rms_norm_backward);

}  // namespace
}  // namespace quench::cuda
