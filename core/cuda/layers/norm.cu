// RMSNorm forward: rows stay in registers, x is read once. Persistent CTAs keep the weight in registers. Fused
// quantization outputs by row or column: norm_quant_outputs.cu.

#include "core/ops/norm.h"

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pdl.cuh"
#include "core/cuda/layers/norm_quant_outputs.h"
#include "core/cuda/layers/norm_rows.cuh"

namespace quench::cuda {
namespace {

// Per SM, at 64 registers.
constexpr int kResidentThreads = 1024;

// Memory bound: 4 H (8 H with a residual) + 4 bytes per row in bf16. At most kGroup * kVectors 16-byte vectors per row.
// Summation order is independent of the quantization outputs, which require bf16.
template <class T, int kGroup, int kVectors, QuantOutputParts kParts>
__global__ __launch_bounds__(kNormBlock<kGroup>,
                             kResidentThreads / kNormBlock<kGroup>) void norm_kernel(ForwardRows<T> args) {
  constexpr int kRows = kNormBlock<kGroup> / kGroup;
  pdl_sync();
  static_assert(kParts != QuantOutputParts::rows);
  __shared__ GroupScratch scratch;
  int turn = 0;
  const int lane = static_cast<int>(threadIdx.x) % kGroup, vectors = args.vectors;
  __shared__ BlockMax::Scratch max_scratch;
  RunningMax<T> largest;
  const float scale = kParts == QuantOutputParts::codes ? *args.quant_outputs.given_scale : 0.0f;

  Packed<T> weight[kVectors];
  load_weight<kGroup>(weight, args.weight, lane, vectors);

  // Uniform trip count: group_sum has barriers and shuffles.
  for (std::uint32_t first = blockIdx.x * kRows; first < args.rows; first += gridDim.x * kRows) {
    const std::uint32_t number = first + threadIdx.x / kGroup;
    const std::uint32_t row = number < args.rows ? number : 0;
    const int end = number < args.rows ? vectors : 0;  // vectors
    const RowPosition at = args.numbering(row);
    Packed<T> value[kVectors];
    load_row<kGroup>(value, args.x[at], lane, end);
    if (args.residual.base != nullptr) {
      T* total = args.sum[at];
      Packed<T> addend[kVectors];
      load_row<kGroup>(addend, args.residual[at], lane, end);
#pragma unroll
      for (int k = 0; k < kVectors; ++k) {
        if (lane + k * kGroup >= end) continue;
        value[k] = sum(value[k], addend[k]);
        store_packed(total, lane + k * kGroup, value[k]);
      }
    }

    float squares = 0;
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
      if (lane + k * kGroup < end) squares += sum_of_squares(value[k]);
    squares = group_sum<kGroup>(squares, scratch, turn);
    const float rstd = reciprocal_root_mean(squares, static_cast<float>(args.width), args.eps);
    if (lane == 0 && end > 0) args.rstd[row] = rstd;
    T* y = args.y[at];
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      if (lane + k * kGroup >= end) continue;
      value[k] = normalised<T>(value[k], rstd, weight[k], args);
      if (kParts != QuantOutputParts::codes || args.y.base != nullptr) store_packed(y, lane + k * kGroup, value[k]);
      if constexpr (kParts != QuantOutputParts::none) largest.add(value[k]);
      if constexpr (kParts == QuantOutputParts::codes)
        encode_piece(args.quant_outputs, std::int64_t{row} * vectors + lane + k * kGroup, value[k], scale);
    }
  }
  if constexpr (kParts != QuantOutputParts::none) {
    if (kParts == QuantOutputParts::codes && args.quant_outputs.amax == nullptr) return;
    BlockMax block_max(max_scratch);
    raise_amax(args.quant_outputs.amax, largest.word(), block_max);
  }
}

constexpr int kAnyThreads = 256;

// Any width and alignment: rows are read twice, the second time from cache. Threads re-read only their own writes:
// outputs may alias inputs.
template <class T>
__global__ __launch_bounds__(kAnyThreads) void norm_any_kernel(ForwardRows<T> args) {
  pdl_sync();
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
    const float rstd = reciprocal_root_mean(squares, static_cast<float>(args.width), args.eps);
    if (threadIdx.x == 0) args.rstd[row] = rstd;
    T* y = args.y[at];
    for (std::int64_t i = threadIdx.x; i < args.width; i += kAnyThreads)
      y[i] = normalised<T>(source[i], rstd, args.weight[i], args);
  }
}

template <class T, QuantOutputParts kParts>
void launch_norm(const OpLaunch& launch, const ForwardRows<T>& args) {
  const std::int64_t vectors = args.width / kVectorWidth<T>;
  const auto run = [&]<int kGroup, int kVectors>() {
    constexpr int kThreads = kNormBlock<kGroup>;
    launch.early(args.rows, norm_kernel<T, kGroup, kVectors, kParts>,
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

// Whether norm_kernel writes them.
bool codes_are_wide(const RmsNormArgs& args) {
  const ForwardRows<bfloat16> rows(args);
  return rows.wide() && rows.width / kVectorWidth<bfloat16> <= 4096 && rows.quant_outputs.wide();
}

void rms_norm(const RmsNormArgs& given) {
  RmsNormArgs args = given;
  const OpLaunch launch("rms_norm", {&args.x, &args.residual, &args.weight, &args.y, &args.sum, &args.rstd});
  check_row_count("rms_norm", args.rstd.numel());
  const QuantOutputParts parts = parts_of(args.quant_outputs);
  const bool codes = parts == QuantOutputParts::codes && !args.quant_outputs.transposed_codes.defined() &&
                     args.x.rank() == 2 && args.x.dtype() == DType::bf16 && codes_are_wide(args);
  if (!args.y.defined() && !codes) args.y = Tensor::empty(args.x.shape(), args.x.dtype(), args.x.device());
  if (parts == QuantOutputParts::rows && rms_norm_by_rows(launch, args)) return;
  const bool fused = dispatch<float, bfloat16>(args.x.dtype(), "rms_norm", [&]<class T>() {
    const ForwardRows<T> rows(args);
    if (!rows.wide() || rows.width / kVectorWidth < T >> 4096) {
      launch.early(rows.rows, norm_any_kernel<T>, strided_grid(launch.device(), rows.rows, 1), kAnyThreads, 0, rows);
      return false;
    }
    if constexpr (std::is_same_v<T, bfloat16>) {
      if (codes) {
        launch_norm<T, QuantOutputParts::codes>(launch, rows);
        return true;
      }
      if (parts == QuantOutputParts::amax && !args.quant_outputs.has_codes()) {
        launch_norm<T, QuantOutputParts::amax>(launch, rows);
        return true;
      }
    }
    launch_norm<T, QuantOutputParts::none>(launch, rows);
    return false;
  });
  if (!fused) fill_quant_outputs(args.quant_outputs, args.y);
}

QUENCH_CUDA_KERNEL(rms_norm_slot, rms_norm);

}  // namespace
}  // namespace quench::cuda
