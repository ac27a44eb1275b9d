// RMSNorm forward with fused float8 rows and column amax. One CTA per SM, of thread groups with a row and a named
// barrier each; two reductions per row (sum of squares, amax). The next row is prefetched by cp.async, each thread its
// own elements, without a barrier. Column amax stays in registers, then one atomic update per SM.

#include "core/cuda/layers/norm_quant_outputs.h"

#include <algorithm>

#include "core/cuda/layers/norm_rows.cuh"

namespace quench::cuda {
namespace {

using T = bfloat16;
constexpr int kThreads = 768;  // limit: 80 registers each
constexpr int kVectors = 4;    // 16-byte, per thread, as in norm.cu: same summation order
constexpr int kStages = 2;     // per group

template <int kGroup>
struct GroupBarrier {
  int group;
  __device__ void operator()() const {
    // Barrier 0 is __syncthreads().
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(kGroup) : "memory");
  }
};
constexpr int kMostBarriers = 15;

template <int kGroup>
inline constexpr int kMostGroups = kThreads / kGroup;

// Bytes per row in bf16: 5 H, with a residual 9 H. kGroup threads per row; rank 2, y and sum contiguous.
template <int kGroup, bool kResidual>
__global__ __launch_bounds__(kThreads, 1) void norm_rows_kernel(const __grid_constant__ ForwardRows<T> args) {
  constexpr int kInputs = kResidual ? 2 : 1, kWarps = kGroup / 32;
  static_assert(kWarps == 1 || kMostGroups<kGroup> <= kMostBarriers);
  extern __shared__ Packed<T> memory[];  // [groups][kStages][kInputs][vectors]; finally [groups][vectors]
  __shared__ GroupScratch sum_scratch[kWarps == 1 ? 1 : kMostGroups<kGroup>];
  __shared__ std::uint32_t max_scratch[kMostGroups<kGroup>][kWarps];
  __shared__ BlockMax::Scratch amax_scratch;
  const int vectors = args.vectors, group = static_cast<int>(threadIdx.x) / kGroup,
            lane = static_cast<int>(threadIdx.x) % kGroup;
  const GroupBarrier<kGroup> barrier{group};
  GroupScratch& sums = sum_scratch[kWarps == 1 ? 0 : group];
  int turn = 0;
  Packed<T>* const own = memory + group * kStages * kInputs * vectors + lane;

  // Empty cp.async groups keep counts equal.
  const auto fetch = [&](std::uint32_t row, int stage) {
    if (row < args.rows) {
      const RowPosition at{row, 0};
      Packed<T>* slots = own + stage * kInputs * vectors;
      fetch_row<kGroup, kVectors>(slots, args.x[at], lane, vectors);
      if constexpr (kResidual) fetch_row<kGroup, kVectors>(slots + vectors, args.residual[at], lane, vectors);
    }
    __pipeline_commit();
  };

  // Consecutive rows on different SMs balance the tail.
  const std::uint32_t step = gridDim.x * (blockDim.x / kGroup), first = blockIdx.x + gridDim.x * group;
  int stage = 0;
  fetch(first, stage);
  Packed<T> weight[kVectors], columns[kVectors] = {};
  load_weight<kGroup>(weight, args.weight, lane, vectors);
  std::uint32_t largest_of_all = 0;

  for (std::uint32_t row = first; row < args.rows; row += step, stage ^= 1) {
    fetch(row + step, stage ^ 1);  // consumed by this thread
    __pipeline_wait_prior(kStages - 1);
    for (Packed<T>& piece : weight) keep_packed(piece);
    const std::int64_t begin = std::int64_t{row} * vectors + lane;
    const Packed<T>* const slots = own + stage * kInputs * vectors;
    Packed<T> value[kVectors];
    float squares = 0;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (lane + k * kGroup >= vectors) continue;
      value[k] = slots[k * kGroup];
      if constexpr (kResidual) {
        value[k] = sum(value[k], slots[vectors + k * kGroup]);
        store_packed(args.sum.base, begin + k * kGroup, value[k]);
      }
      squares += sum_of_squares(value[k]);
    }
    squares = group_sum<kGroup>(squares, sums, turn, barrier);
    const float rstd = reciprocal_root_mean(squares, static_cast<float>(vectors * kVectorWidth<T>), args.eps);
    if (lane == 0) args.rstd[row] = rstd;

    std::uint32_t pair = 0;  // amax, bf16x2
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (lane + k * kGroup >= vectors) continue;
      keep_packed(value[k]);
      value[k] = normalised<T>(value[k], rstd, weight[k], args);
      store_packed(args.y.base, begin + k * kGroup, value[k]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t word = magnitudes<T>(value[k].words[i]);
        columns[k].words[i] = larger<T>(columns[k].words[i], word);
        pair = larger<T>(pair, word);
      }
    }
    std::uint32_t most = widened_max(pair);
    if (args.quant_outputs.codes != nullptr) {
      most = __reduce_max_sync(0xFFFFFFFFu, most);
      if constexpr (kWarps > 1) {
        // Reads are ordered before the next writes by the next sum's barrier.
        if (lane % 32 == 0) max_scratch[group][lane / 32] = most;
        barrier();
        most = max_scratch[group][0];
#pragma unroll
        for (int w = 1; w < kWarps; ++w) most = max(most, max_scratch[group][w]);
      }
      const RowScale scale = row_scale(args.quant_outputs, most);
      if (lane == 0) args.quant_outputs.scales[row] = scale.stored;
#pragma unroll
      for (int k = 0; k < kVectors; ++k)
        if (lane + k * kGroup < vectors) encode_piece(args.quant_outputs, begin + k * kGroup, value[k], scale.factor);
    }
    largest_of_all = max(largest_of_all, most);
  }

  if (args.quant_outputs.amax != nullptr) {
    BlockMax block_max(amax_scratch);
    raise_amax(args.quant_outputs.amax, largest_of_all, block_max);
  }
  if (args.quant_outputs.column_amax == nullptr) return;
  __syncthreads();  // all rows complete
#pragma unroll
  for (int k = 0; k < kVectors; ++k)
    if (lane + k * kGroup < vectors) memory[group * vectors + lane + k * kGroup] = columns[k];
  __syncthreads();
  raise_columns(args.quant_outputs.column_amax, vectors, memory, static_cast<int>(blockDim.x) / kGroup, vectors);
}

template <bool kResidual>
bool launch_rows(const OpLaunch& launch, const ForwardRows<T>& args) {
  const int row_bytes = static_cast<int>(sizeof(Packed<T>)) * kStages * (kResidual ? 2 : 1) * args.vectors;
  constexpr int kStatic = 8192;  // bound of static shared memory
  const int most = (max_shared_bytes(launch.device()) - kStatic) / row_bytes;
  if (most == 0) return false;
  const auto run = [&]<int kGroup>() {
    const int groups = std::min(most, kMostGroups<kGroup>);
    launch(norm_rows_kernel<kGroup, kResidual>, strided_grid(launch.device(), args.rows, 1, 1), groups * kGroup,
           static_cast<std::size_t>(groups) * static_cast<std::size_t>(row_bytes), args);
    return true;
  };
  if (args.vectors <= 32 * kVectors) return run.template operator()<32>();
  if (args.vectors <= 64 * kVectors) return run.template operator()<64>();
  if (args.vectors <= 128 * kVectors) return run.template operator()<128>();
  return run.template operator()<256>();
}

// Other widths have another summation order.
constexpr std::int64_t kFewestVectors = 33, kMostVectors = 256 * kVectors;

}  // namespace

bool rms_norm_by_rows(const OpLaunch& launch, const RmsNormArgs& args) {
  const std::int64_t vectors = args.x.size(-1) / kVectorWidth<T>;
  if (args.x.dtype() != DType::bf16 || args.x.rank() != 2 || vectors < kFewestVectors || vectors > kMostVectors)
    return false;
  const ForwardRows<T> rows(args);
  if (!rows.wide() || !rows.quant_outputs.wide()) return false;
  return args.residual.defined() ? launch_rows<true>(launch, rows) : launch_rows<false>(launch, rows);
}

}  // namespace quench::cuda
