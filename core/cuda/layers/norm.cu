// RMSNorm, forward.
//
// A row stays in registers between the sum of its squares and its normalisation, so that x is read once; the weight
// stays there from row to row of a persistent block. Sinks that take more than the largest magnitude of all have a
// kernel of their own (norm_sink.cu).

#include "core/ops/norm.h"

#include "core/cuda/common/early_start.cuh"
#include "core/cuda/common/launch.h"
#include "core/cuda/common/pack.cuh"
#include "core/cuda/common/rows.cuh"
#include "core/cuda/layers/norm_sink.h"
#include "core/cuda/quantize/quant_sink.cuh"

namespace quench::cuda {
namespace {

template <class T>
struct NormRows {
  Rows<const T> x, residual;
  const T* weight;
  Rows<T> y, sum;
  float* rstd;
  std::uint32_t rows;
  RowNumbering numbering;
  std::int64_t width;
  float eps;
  SinkPointers sink;

  explicit NormRows(const RmsNormArgs& args)
      : x(args.x),
        residual(args.residual),
        weight(args.weight.data<T>()),
        y(args.y),
        sum(args.sum),
        rstd(args.rstd.data<float>()),
        rows(static_cast<std::uint32_t>(args.rstd.numel())),
        numbering(args.x),
        width(args.x.size(-1)),
        eps(args.eps),
        sink(args.sink) {}
  [[nodiscard]] bool wide() const {
    return x.wide(width) && residual.wide(width) && y.wide(width) && sum.wide(width) &&
           rows_are_wide<T>(weight, 0, width);
  }
};

// Threads of a block in which kGroup threads share a row.
template <int kGroup>
inline constexpr int kBlock = kGroup > 32 ? kGroup : 256;

// Resident threads of a multiprocessor: 64 registers each.
constexpr int kResidentThreads = 1024;

// Moves x and y, or x, residual, sum and y, once each, plus 4 bytes a row: 4 H (8 H with a residual) bytes a row in
// bf16. A row has at most kGroup * kVectors pieces of 16 bytes. The sum over a row has the same order with every sink.
// Sinks need bf16.
template <class T, int kGroup, int kVectors, SinkParts kSink>
__global__ __launch_bounds__(kBlock<kGroup>, kResidentThreads / kBlock<kGroup>) void norm_kernel(NormRows<T> args) {
  constexpr int kWidth = kVectorWidth<T>;
  constexpr int kRows = kBlock<kGroup> / kGroup;
  start_early();
  static_assert(kSink != SinkParts::rows);
  __shared__ GroupScratch scratch;
  int turn = 0;
  const int lane = static_cast<int>(threadIdx.x) % kGroup;
  const int vectors = static_cast<int>(args.width / kWidth);
  __shared__ BlockMax::Scratch max_scratch;
  RunningMax<T> largest;

  Packed<T> weight[kVectors];
#pragma unroll
  for (int k = 0; k < kVectors; ++k)
    if (lane + k * kGroup < vectors) weight[k] = load_packed(args.weight, lane + k * kGroup);

  // The block stays together to the last row: group_sum has barriers and shuffles.
  for (std::uint32_t first = blockIdx.x * kRows; first < args.rows; first += gridDim.x * kRows) {
    const std::uint32_t number = first + threadIdx.x / kGroup;
    const std::uint32_t row = number < args.rows ? number : 0;
    const int end = number < args.rows ? vectors : 0;  // pieces of this row
    const RowPosition at = args.numbering(row);
    const T* x = args.x[at];
    Packed<T> value[kVectors];
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
      if (lane + k * kGroup < end) value[k] = load_packed_once(x, lane + k * kGroup);
    if (args.residual.base != nullptr) {
      const T* residual = args.residual[at];
      T* sum = args.sum[at];
      Packed<T> other[kVectors];
#pragma unroll
      for (int k = 0; k < kVectors; ++k)
        if (lane + k * kGroup < end) other[k] = load_packed_once(residual, lane + k * kGroup);
#pragma unroll
      for (int k = 0; k < kVectors; ++k) {
        if (lane + k * kGroup >= end) continue;
        Vector<float, kVectorWidth<T>> total = unpack(value[k]);
        const Vector<float, kVectorWidth<T>> addend = unpack(other[k]);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) total[j] += addend[j];
        value[k] = pack<T>(total);
        store_packed(sum, lane + k * kGroup, value[k]);
      }
    }

    float squares = 0;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (lane + k * kGroup >= end) continue;
      const Vector<float, kVectorWidth<T>> v = unpack(value[k]);
      float part[2] = {};
#pragma unroll
      for (int j = 0; j < kWidth; ++j) part[j % 2] = fmaf(v[j], v[j], part[j % 2]);
      squares += part[0] + part[1];
    }
    squares = group_sum<kGroup>(squares, scratch, turn);
    const float inverse = 1.0f / sqrtf(squares / static_cast<float>(args.width) + args.eps);
    if (lane == 0 && end > 0) args.rstd[row] = inverse;
    T* y = args.y[at];
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (lane + k * kGroup >= end) continue;
      Vector<float, kVectorWidth<T>> out = unpack(value[k]);
      const Vector<float, kVectorWidth<T>> w = unpack(weight[k]);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) out[j] *= inverse;
      out = rounded<T>(out);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) out[j] *= w[j];
      value[k] = pack<T>(out);
      store_packed(y, lane + k * kGroup, value[k]);
      if constexpr (kSink == SinkParts::amax) largest.add(value[k]);
    }
  }
  if constexpr (kSink == SinkParts::amax) {
    BlockMax block_max(max_scratch);
    raise_amax(args.sink.amax, largest.word(), block_max);
  }
}

constexpr int kAnyThreads = 256;

// Rows of any width and alignment. Reads the row twice, the second time from the caches; a thread meets only what it
// wrote itself, so that outputs may alias inputs as in the other kernel.
template <class T>
__global__ __launch_bounds__(kAnyThreads) void norm_any_kernel(NormRows<T> args) {
  start_early();
  __shared__ GroupScratch scratch;
  int turn = 0;
  for (std::uint32_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const RowPosition at = args.numbering(row);
    const T* source = args.x[at];
    float squares = 0;
    if (args.residual.base != nullptr) {
      const T* residual = args.residual[at];
      T* sum = args.sum[at];
      for (std::int64_t i = threadIdx.x; i < args.width; i += kAnyThreads) {
        const T value = from_float<T>(to_float(source[i]) + to_float(residual[i]));
        sum[i] = value;
        squares = fmaf(to_float(value), to_float(value), squares);
      }
      source = sum;
    } else {
      for (std::int64_t i = threadIdx.x; i < args.width; i += kAnyThreads)
        squares = fmaf(to_float(source[i]), to_float(source[i]), squares);
    }
    squares = group_sum<kAnyThreads>(squares, scratch, turn);
    const float inverse = 1.0f / sqrtf(squares / static_cast<float>(args.width) + args.eps);
    if (threadIdx.x == 0) args.rstd[row] = inverse;
    T* y = args.y[at];
    for (std::int64_t i = threadIdx.x; i < args.width; i += kAnyThreads)
      y[i] = from_float<T>(rounded<T>(to_float(source[i]) * inverse) * to_float(args.weight[i]));
  }
}

template <class T, SinkParts kSink>
void launch_norm(const OpLaunch& launch, const NormRows<T>& args) {
  const std::int64_t vectors = args.width / kVectorWidth<T>;
  const auto run = [&]<int kGroup, int kVectors>() {
    constexpr int kThreads = kBlock<kGroup>;
    launch.early(args.rows, norm_kernel<T, kGroup, kVectors, kSink>,
                 strided_grid(launch.device(), args.rows, kThreads / kGroup, kResidentThreads / kThreads), kThreads, 0,
                 args);
  };
  if (vectors <= 8) return run.template operator()<8, 1>();
  if (vectors <= 16) return run.template operator()<16, 1>();
  if (vectors <= 32) return run.template operator()<32, 1>();
  if (vectors <= 128) return run.template operator()<32, 4>();
  if (vectors <= 256) return run.template operator()<64, 4>();
  if (vectors <= 512) return run.template operator()<128, 4>();
  if (vectors <= 1024) return run.template operator()<256, 4>();
  run.template operator()<1024, 4>();
}

void rms_norm(const RmsNormArgs& args) {
  const OpLaunch launch("rms_norm", {&args.x, &args.residual, &args.weight, &args.y, &args.sum, &args.rstd});
  check_row_count("rms_norm", args.rstd.numel());
  const SinkParts parts = parts_of(args.sink);
  if (parts == SinkParts::rows && rms_norm_by_rows(launch, args)) return;
  const bool fused = dispatch<float, bfloat16>(args.x.dtype(), "rms_norm", [&]<class T>() {
    const NormRows<T> rows(args);
    if (!rows.wide() || rows.width / kVectorWidth < T >> 4096) {
      launch.early(rows.rows, norm_any_kernel<T>, strided_grid(launch.device(), rows.rows, 1), kAnyThreads, 0, rows);
      return false;
    }
    if constexpr (std::is_same_v<T, bfloat16>) {
      if (parts == SinkParts::amax) {
        launch_norm<T, SinkParts::amax>(launch, rows);
        return true;
      }
    }
    launch_norm<T, SinkParts::none>(launch, rows);
    return false;
  });
  if (!fused) fill_sink(args.sink, args.y);
}

QUENCH_CUDA_KERNEL(rms_norm_slot, rms_norm);

}  // namespace
}  // namespace quench::cuda
