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

// Next rows by cp.async, each thread its own elements: [kStages][x, residual][vectors] per group.
template <int kGroup, bool kResidual>
struct ForwardPrefetch {
  static constexpr int kInputs = kResidual ? 2 : 1;
  const ForwardRows<T>& args;
  Packed<T>* own_slots;  // from the thread's lane on
  int lane;

  [[nodiscard]] __device__ Packed<T>* slots(int stage) const { return own_slots + stage * kInputs * args.vectors; }
  // Empty cp.async groups keep counts equal.
  __device__ __forceinline__ void fetch(std::uint32_t row, int stage) const {
    if (row < args.rows) {
      const RowPosition at{row, 0};
      fetch_row<kGroup, kVectors>(slots(stage), args.x[at], lane, args.vectors);
      if constexpr (kResidual)
        fetch_row<kGroup, kVectors>(slots(stage) + args.vectors, args.residual[at], lane, args.vectors);
    }
    __pipeline_commit();
  }
};

// Thread's elements of a row.
template <int kGroup, bool kResidual>
struct ForwardRow {
  const ForwardRows<T>& args;
  std::int64_t begin;  // first vector, from the first row's
  int lane;
  Packed<T> value[kVectors];

  [[nodiscard]] __device__ bool has(int k) const { return lane + k * kGroup < args.vectors; }

  // Sum of squares; x + residual is stored.
  __device__ __forceinline__ float load(const Packed<T>* slots) {
    float squares = 0;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (!has(k)) continue;
      value[k] = slots[k * kGroup];
      if constexpr (kResidual) {
        value[k] = sum(value[k], slots[args.vectors + k * kGroup]);
        store_packed(args.sum.base, begin + k * kGroup, value[k]);
      }
      squares += sum_of_squares(value[k]);
    }
    return squares;
  }
  // Stores y and raises the column maxima. Amax as f32 bits.
  __device__ __forceinline__ std::uint32_t normalise(const Packed<T> (&weight)[kVectors], float rstd,
                                                     Packed<T> (&columns)[kVectors]) {
    std::uint32_t pair = 0;  // bf16x2
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (!has(k)) continue;
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
    return widened_max(pair);
  }
  // `most`: the row's amax.
  __device__ __forceinline__ void encode(std::uint32_t row, std::uint32_t most) const {
    const RowScale scale = row_scale(args.quant_outputs, most);
    if (lane == 0) args.quant_outputs.scales[row] = scale.stored;
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
      if (has(k)) encode_piece(args.quant_outputs, begin + k * kGroup, value[k], scale.factor);
  }
};

// Maximum over the group, in every thread. Reads are ordered before the next writes by the next sum's barrier.
template <int kGroup>
__device__ __forceinline__ std::uint32_t group_max(std::uint32_t most, std::uint32_t (&scratch)[kGroup / 32],
                                                   const GroupBarrier<kGroup>& barrier) {
  most = __reduce_max_sync(0xFFFFFFFFu, most);
  if constexpr (kGroup > 32) {
    const int lane = static_cast<int>(threadIdx.x) % kGroup;
    if (lane % 32 == 0) scratch[lane / 32] = most;
    barrier();
    most = scratch[0];
#pragma unroll
    for (int w = 1; w < kGroup / 32; ++w) most = max(most, scratch[w]);
  }
  return most;
}

// CTA collective, after all rows; `memory` is free then: [groups][vectors].
template <int kGroup>
__device__ __forceinline__ void store_column_amax(std::uint32_t* column_amax, const Packed<T> (&columns)[kVectors],
                                                  Packed<T>* memory, int vectors) {
  const int group = static_cast<int>(threadIdx.x) / kGroup, lane = static_cast<int>(threadIdx.x) % kGroup;
  __syncthreads();  // all rows complete
#pragma unroll
  for (int k = 0; k < kVectors; ++k)
    if (lane + k * kGroup < vectors) memory[group * vectors + lane + k * kGroup] = columns[k];
  __syncthreads();
  raise_columns(column_amax, vectors, memory, static_cast<int>(blockDim.x) / kGroup, vectors);
}

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
  const ForwardPrefetch<kGroup, kResidual> prefetch{args, memory + group * kStages * kInputs * vectors + lane, lane};

  // Consecutive rows on different SMs balance the tail.
  const std::uint32_t step = gridDim.x * (blockDim.x / kGroup), first = blockIdx.x + gridDim.x * group;
  int stage = 0;
  prefetch.fetch(first, stage);
  Packed<T> weight[kVectors], columns[kVectors] = {};
  load_weight<kGroup>(weight, args.weight, lane, vectors);
  std::uint32_t largest_of_all = 0;

  for (std::uint32_t row = first; row < args.rows; row += step, stage ^= 1) {
    prefetch.fetch(row + step, stage ^ 1);  // consumed by this thread
    __pipeline_wait_prior(kStages - 1);
    for (Packed<T>& piece : weight) keep_packed(piece);
    ForwardRow<kGroup, kResidual> values{args, std::int64_t{row} * vectors + lane, lane};
    const float squares = group_sum<kGroup>(values.load(prefetch.slots(stage)), sums, turn, barrier);
    const float rstd = reciprocal_root_mean(squares, static_cast<float>(vectors * kVectorWidth<T>), args.eps);
    if (lane == 0) args.rstd[row] = rstd;
    std::uint32_t most = values.normalise(weight, rstd, columns);
    if (args.quant_outputs.codes != nullptr) {
      most = group_max(most, max_scratch[group], barrier);
      values.encode(row, most);
    }
    largest_of_all = max(largest_of_all, most);
  }

  if (args.quant_outputs.amax != nullptr) {
    BlockMax block_max(amax_scratch);
    raise_amax(args.quant_outputs.amax, largest_of_all, block_max);
  }
  if (args.quant_outputs.column_amax != nullptr)
    store_column_amax<kGroup>(args.quant_outputs.column_amax, columns, memory, vectors);
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
