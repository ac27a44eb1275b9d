// Gated units with fused float8 rows and column amax. One CTA per row, for the row amax. The next row is prefetched by
// cp.async, each thread its own elements, hiding the barrier.

#include "core/cuda/layers/swiglu_quant_outputs.h"

#include <cuda_pipeline.h>

#include <algorithm>

#include "core/cuda/common/swiglu_math.cuh"
#include "core/cuda/quantize/quant_outputs.cuh"

namespace quench::cuda {
namespace {

using T = bfloat16;
// Backward: shared memory is exhausted before three vectors per thread need more than 832 threads (72 registers each).
constexpr int kMaxThreads = 1024;
template <bool kBackward, int kPieces>
inline constexpr int kBlock = kPieces == 3 && kBackward ? 832 : kMaxThreads;
constexpr int kStages = 2;  // rows

struct SwigluRows {
  const T* dout = nullptr;  // backward
  const T* gate_up = nullptr;
  T* out = nullptr;  // optional in backward
  T* dgate_up = nullptr;
  std::int64_t rows = 0;
  int pieces = 0;  // 16-byte vectors of I elements
  QuantOutputPointers quant_outputs;
};

// Gate, up, and dout in backward.
template <bool kBackward>
inline constexpr int kInputs = kBackward ? 3 : 2;

// At most kPieces vectors per thread. Bytes per row in bf16: forward 4 I read, 3 I written; backward 6 I read, 6 I
// written, 2 I more for a recomputed `out`.
template <bool kBackward, int kPieces, GatedActivation kActivation>
__global__ __launch_bounds__(kBlock<kBackward, kPieces>) void swiglu_rows_kernel(
    const __grid_constant__ SwigluRows args) {
  extern __shared__ Packed<T> memory[];  // [kStages][kInputs][pieces]
  __shared__ BlockMax::Scratch scratch;
  const int pieces = args.pieces, threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);

  // Empty cp.async groups keep counts equal.
  const auto fetch = [&](std::int64_t row, int stage) {
    if (row < args.rows) {
      const auto* gate_up = reinterpret_cast<const Packed<T>*>(args.gate_up) + row * 2 * pieces;
      const auto* dout = kBackward ? reinterpret_cast<const Packed<T>*>(args.dout) + row * pieces : nullptr;
#pragma unroll
      for (int k = 0; k < kPieces; ++k) {
        const int piece = thread + k * threads;
        if (piece >= pieces) continue;
        Packed<T>* slot = memory + stage * kInputs<kBackward> * pieces + piece;
        __pipeline_memcpy_async(slot, gate_up + piece, sizeof(Packed<T>));
        __pipeline_memcpy_async(slot + pieces, gate_up + pieces + piece, sizeof(Packed<T>));
        if constexpr (kBackward) __pipeline_memcpy_async(slot + 2 * pieces, dout + piece, sizeof(Packed<T>));
      }
    }
    __pipeline_commit();
  };

  BlockMax block_max(scratch);
  constexpr int kOutputs = kBackward ? 2 : 1;  // times I elements
  RowQuantOutputs<QuantOutputParts::rows> quant_outputs(args.quant_outputs, block_max);
  Packed<T> columns[kOutputs][kPieces] = {};
  int stage = 0;
  fetch(blockIdx.x, stage);
  for (std::int64_t row = blockIdx.x; row < args.rows; row += gridDim.x, stage ^= 1) {
    fetch(row + gridDim.x, stage ^ 1);  // consumed by this thread
    __pipeline_wait_prior(kStages - 1);
    Packed<T>* const slots = memory + stage * kInputs<kBackward> * pieces + thread;
#pragma unroll
    for (int k = 0; k < kPieces; ++k) {
      const int piece = thread + k * threads;
      if (piece >= pieces) continue;
      Packed<T>* slot = slots + k * threads;
      const auto gate = unpack(slot[0]), up = unpack(slot[pieces]);
      if constexpr (kBackward) {
        const auto gradient = swiglu_gradient<kActivation>(unpack(slot[2 * pieces]), gate, up);
        const Packed<T> dgate = pack<T>(gradient.dgate), dup = pack<T>(gradient.dup);
        store_packed(args.dgate_up, row * 2 * pieces + piece, dgate);
        store_packed(args.dgate_up, row * 2 * pieces + pieces + piece, dup);
        if (args.out != nullptr) store_packed(args.out, row * pieces + piece, pack<T>(gradient.out));
        slot[0] = dgate;
        slot[pieces] = dup;
        quant_outputs.add(dgate, columns[0][k]);
        quant_outputs.add(dup, columns[1][k]);
      } else {
        const Packed<T> result = pack<T>(swiglu_of<kActivation>(gate, up));
        store_packed(args.out, row * pieces + piece, result);
        slot[0] = result;
        quant_outputs.add(result, columns[0][k]);
      }
    }
    const float scale = quant_outputs.finish_row(row, true);
    if (!quant_outputs.has_codes()) continue;
#pragma unroll
    for (int k = 0; k < kPieces; ++k) {
      const int piece = thread + k * threads;
      if (piece >= pieces) continue;
#pragma unroll
      for (int output = 0; output < kOutputs; ++output)
        quant_outputs.encode((row * kOutputs + output) * pieces + piece, slots[k * threads + output * pieces], scale);
    }
  }
  __syncthreads();  // column amax complete
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    const int piece = thread + k * threads;
    if (piece >= pieces) continue;
#pragma unroll
    for (int output = 0; output < kOutputs; ++output) memory[output * pieces + piece] = columns[output][k];
  }
  quant_outputs.finish<1, 0>(kOutputs * pieces, memory);
}

template <bool kBackward, GatedActivation kActivation>
bool launch_rows_of(const OpLaunch& launch, const SwigluRows& args) {
  const int pieces = args.pieces;
  const auto shared = static_cast<int>(sizeof(Packed<T>)) * kStages * kInputs<kBackward> * pieces;
  const int most = max_shared_bytes(launch.device()) - static_cast<int>(sizeof(BlockMax::Scratch));
  if (shared > most) return false;
  const auto run = [&]<int kPieces>() {
    if (pieces > kPieces * kBlock<kBackward, kPieces>) return false;
    constexpr int kReserved = 1536;  // bound of static and system-reserved shared memory
    const int threads = ((pieces + kPieces - 1) / kPieces + 31) / 32 * 32;
    const int blocks = std::clamp(most / (shared + kReserved), 1, kMaxThreads / threads);
    launch(swiglu_rows_kernel<kBackward, kPieces, kActivation>, strided_grid(launch.device(), args.rows, 1, blocks),
           threads, static_cast<std::size_t>(shared), args);
    return true;
  };
  // Two CTAs per SM up to half of the threads.
  if (pieces <= kMaxThreads / 2) return run.template operator()<1>();
  if (pieces <= 2 * kMaxThreads) return run.template operator()<2>();
  if constexpr (kBackward)
    return run.template operator()<3>();
  else
    return run.template operator()<3>() || run.template operator()<4>();
}

template <bool kBackward>
bool launch_rows(const OpLaunch& launch, const SwigluRows& args, GatedActivation activation) {
  if (activation == GatedActivation::silu) return launch_rows_of<kBackward, GatedActivation::silu>(launch, args);
  return launch_rows_of<kBackward, GatedActivation::gelu_tanh>(launch, args);
}

// bf16, rows of whole 16-byte vectors.
bool takes(const Tensor& half, const QuantOutputs& quant_outputs, std::initializer_list<const Tensor*> operands) {
  const std::int64_t width = half.size(1);
  return half.dtype() == DType::bf16 && width <= 8 * 4 * kMaxThreads && QuantOutputPointers(quant_outputs).wide() &&
         std::all_of(operands.begin(), operands.end(),
                     [&](const Tensor* t) { return rows_are_wide<T>(t->raw_data(), width, width); });
}

}  // namespace

bool swiglu_by_rows(const OpLaunch& launch, const SwigluArgs& args) {
  if (!takes(args.out, args.quant_outputs, {&args.gate_up, &args.out})) return false;
  return launch_rows<false>(launch,
                            {.gate_up = args.gate_up.data<T>(),
                             .out = args.out.data<T>(),
                             .rows = args.out.size(0),
                             .pieces = static_cast<int>(args.out.size(1) / kVectorWidth<T>),
                             .quant_outputs = QuantOutputPointers(args.quant_outputs)},
                            args.activation);
}

bool swiglu_backward_by_rows(const OpLaunch& launch, const SwigluBackwardArgs& args) {
  const Tensor& again = args.out.defined() ? args.out : args.dout;
  if (!takes(args.dout, args.quant_outputs, {&args.dout, &args.gate_up, &args.dgate_up, &again})) return false;
  return launch_rows<true>(launch,
                           {.dout = args.dout.data<T>(),
                            .gate_up = args.gate_up.data<T>(),
                            .out = args.out.defined() ? args.out.data<T>() : nullptr,
                            .dgate_up = args.dgate_up.data<T>(),
                            .rows = args.dout.size(0),
                            .pieces = static_cast<int>(args.dout.size(1) / kVectorWidth<T>),
                            .quant_outputs = QuantOutputPointers(args.quant_outputs)},
                           args.activation);
}

}  // namespace quench::cuda
