#include "core/ops/swiglu.h"

#include <algorithm>

#include "core/cuda/launch.h"
#include "core/cuda/pack.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;

// 1 / (1 + e^-x) to a few ulp; 0 and 1 at the infinities, NaN stays NaN. The approximate reciprocal (1 ulp, and 0 for
// results below the normal numbers) saves the exact one's dozen instructions.
__device__ inline float sigmoid(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(1.0f + expf(-x)));
  return result;
}

// Read once: leaves the caches to others.
template <class T, int kWidth>
__device__ inline Vector<float, kWidth> load(const T* pointer, std::int64_t index) {
  if constexpr (kWidth == 1)
    return {to_float(pointer[index])};
  else
    return unpack<T>(load_packed_once(pointer, index));
}

// Calls body(row, piece) for all `count` pieces of rows of `pieces` each, the threads of a warp on neighbours.
template <class Body>
__device__ inline void for_pieces(std::int64_t count, std::int64_t pieces, const Body& body) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const std::int64_t row =
        static_cast<std::int64_t>(static_cast<std::uint64_t>(i) / static_cast<std::uint64_t>(pieces));
    body(row, i - row * pieces);
  }
}

// Reads 2 I and writes I elements a row: 6 I bytes in bf16.
template <class T, bool kWide>
__global__ __launch_bounds__(kThreads, 8) void swiglu_kernel(const T* gate_up, T* out, std::int64_t count,
                                                             std::int64_t pieces) {
  constexpr int kWidth = kWide ? kVectorWidth<T> : 1;
  for_pieces(count, pieces, [&](std::int64_t row, std::int64_t piece) {
    const std::int64_t gate_index = row * 2 * pieces + piece;
    const auto gate = load<T, kWidth>(gate_up, gate_index), up = load<T, kWidth>(gate_up, gate_index + pieces);
    Vector<float, kWidth> result;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) result[j] = gate[j] * sigmoid(gate[j]) * up[j];
    store_values(out, row * pieces + piece, result);
  });
}

// With s = sigmoid(g): d silu(g) / dg = s (1 + g (1 - s)). Reads 3 I and writes 2 I elements a row: 10 I bytes in
// bf16. dgate_up may be gate_up: a thread has read what it overwrites. With `out` the forward result is made again on
// the way, for I elements a row more.
template <class T, bool kWide>
__global__ __launch_bounds__(kThreads, 5) void swiglu_backward_kernel(const T* dout, const T* gate_up, T* dgate_up,
                                                                      T* out, std::int64_t count, std::int64_t pieces) {
  constexpr int kWidth = kWide ? kVectorWidth<T> : 1;
  for_pieces(count, pieces, [&](std::int64_t row, std::int64_t piece) {
    const std::int64_t gate_index = row * 2 * pieces + piece;
    const auto d = load<T, kWidth>(dout, row * pieces + piece);
    const auto gate = load<T, kWidth>(gate_up, gate_index), up = load<T, kWidth>(gate_up, gate_index + pieces);
    Vector<float, kWidth> dgate, dup, result;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float s = sigmoid(gate[j]), silu = gate[j] * s;
      dgate[j] = d[j] * up[j] * fmaf(silu, 1.0f - s, s);
      dup[j] = d[j] * silu;
      result[j] = silu * up[j];
    }
    if (out != nullptr) store_values(out, row * pieces + piece, result);
    store_values(dgate_up, gate_index, dgate);
    store_values(dgate_up, gate_index + pieces, dup);
  });
}

// Calls launch_with.operator()<T, kWide>(count, pieces) as the operands allow.
template <class LaunchWith>
void choose(std::string_view op, const Tensor& half, std::initializer_list<const Tensor*> operands,
            const LaunchWith& launch_with) {
  const std::int64_t n = half.size(0), width = half.size(1);
  dispatch<float, bfloat16>(half.dtype(), op, [&]<class T>() {
    const bool wide = std::all_of(operands.begin(), operands.end(),
                                  [&](const Tensor* t) { return rows_are_wide<T>(t->raw_data(), width, width); });
    const std::int64_t pieces = wide ? width / kVectorWidth<T> : width, count = n * pieces;
    if (wide)
      launch_with.template operator()<T, true>(count, pieces);
    else
      launch_with.template operator()<T, false>(count, pieces);
  });
}

void swiglu(const SwigluArgs& args) {
  const OpLaunch launch("swiglu", {&args.gate_up, &args.out});
  choose("swiglu", args.out, {&args.gate_up, &args.out},
         [&]<class T, bool kWide>(std::int64_t count, std::int64_t pieces) {
           launch(swiglu_kernel<T, kWide>, strided_grid(launch.device(), count, kThreads, 8, 4), kThreads, 0,
                  args.gate_up.data<T>(), args.out.data<T>(), count, pieces);
         });
  fill_sink(args.sink, args.out);
}

void swiglu_backward(const SwigluBackwardArgs& args) {
  const OpLaunch launch("swiglu_backward", {&args.dout, &args.gate_up, &args.dgate_up, &args.out});
  const Tensor& again = args.out.defined() ? args.out : args.dout;
  choose("swiglu_backward", args.dout, {&args.dout, &args.gate_up, &args.dgate_up, &again},
         [&]<class T, bool kWide>(std::int64_t count, std::int64_t pieces) {
           launch(swiglu_backward_kernel<T, kWide>, strided_grid(launch.device(), count, kThreads, 5, 4), kThreads, 0,
                  args.dout.data<T>(), args.gate_up.data<T>(), args.dgate_up.data<T>(),
                  args.out.defined() ? args.out.data<T>() : nullptr, count, pieces);
         });
  fill_sink(args.sink, args.dgate_up);
}

QUENCH_CUDA_KERNEL(swiglu_slot, swiglu);
QUENCH_CUDA_KERNEL(swiglu_backward_slot, swiglu_backward);

}  // namespace
}  // namespace quench::cuda
