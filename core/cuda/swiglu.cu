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
  return __fdividef(1.0f, 1.0f + expf(-x));
}

// Sixteen bytes or one element of T, in registers and as f32.
template <class T, bool kWide>
struct Piece {
  using Value = std::conditional_t<kWide, Floats<T>, Vector<float, 1>>;
  static constexpr int kWidth = kWide ? kVectorWidth<T> : 1;
  static __device__ Value load(const T* pointer, std::int64_t index) {
    if constexpr (kWide)
      return unpack<T>(load_packed_once(pointer, index));
    else
      return {to_float(pointer[index])};
  }
  static __device__ void store(T* pointer, std::int64_t index, const Value& value) {
    if constexpr (kWide)
      store_packed(pointer, index, pack<T>(value));
    else
      pointer[index] = from_float<T>(value[0]);
  }
};

// Calls body(row, piece) for the pieces of N rows of `pieces` each, the threads of a warp on neighbours.
template <class Index, class Body>
__device__ inline void for_pieces(std::int64_t count, std::int64_t pieces, const Body& body) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const Index row = static_cast<Index>(i) / static_cast<Index>(pieces);
    body(static_cast<std::int64_t>(row), i - static_cast<std::int64_t>(row) * pieces);
  }
}

// Reads 2 I and writes I elements a row: 6 I bytes in bf16. Index is wide enough for the number of pieces.
template <class T, bool kWide, class Index>
__global__ __launch_bounds__(kThreads, 8) void swiglu_kernel(const T* gate_up, T* out, std::int64_t count,
                                                             std::int64_t pieces) {
  using P = Piece<T, kWide>;
  for_pieces<Index>(count, pieces, [&](std::int64_t row, std::int64_t piece) {
    const std::int64_t gate_index = row * 2 * pieces + piece;
    const auto gate = P::load(gate_up, gate_index), up = P::load(gate_up, gate_index + pieces);
    typename P::Value result;
#pragma unroll
    for (int j = 0; j < P::kWidth; ++j) result[j] = gate[j] * sigmoid(gate[j]) * up[j];
    P::store(out, row * pieces + piece, result);
  });
}

// With s = sigmoid(g): d silu(g) / dg = s (1 + g (1 - s)). Reads 3 I and writes 2 I elements a row: 10 I bytes in
// bf16. dgate_up may be gate_up: a thread has read what it overwrites.
template <class T, bool kWide, class Index>
__global__ __launch_bounds__(kThreads, 5) void swiglu_backward_kernel(const T* dout, const T* gate_up, T* dgate_up,
                                                                      std::int64_t count, std::int64_t pieces) {
  using P = Piece<T, kWide>;
  for_pieces<Index>(count, pieces, [&](std::int64_t row, std::int64_t piece) {
    const std::int64_t gate_index = row * 2 * pieces + piece;
    const auto d = P::load(dout, row * pieces + piece);
    const auto gate = P::load(gate_up, gate_index), up = P::load(gate_up, gate_index + pieces);
    typename P::Value dgate, dup;
#pragma unroll
    for (int j = 0; j < P::kWidth; ++j) {
      const float s = sigmoid(gate[j]), silu = gate[j] * s;
      dgate[j] = d[j] * up[j] * fmaf(silu, 1.0f - s, s);
      dup[j] = d[j] * silu;
    }
    P::store(dgate_up, gate_index, dgate);
    P::store(dgate_up, gate_index + pieces, dup);
  });
}

// Calls launch_with.operator()<T, kWide, Index>(count, pieces) as the operands allow.
template <class LaunchWith>
void choose(std::string_view op, const Tensor& half, std::initializer_list<const Tensor*> operands,
            const LaunchWith& launch_with) {
  const std::int64_t n = half.size(0), width = half.size(1);
  dispatch<float, bfloat16>(half.dtype(), op, [&]<class T>() {
    const bool wide = std::all_of(operands.begin(), operands.end(),
                                  [&](const Tensor* t) { return rows_are_wide<T>(t->raw_data(), width, width); });
    const std::int64_t pieces = wide ? width / kVectorWidth<T> : width, count = n * pieces;
    const bool narrow_index = count <= std::int64_t{0xFFFFFFFF};
    if (wide && narrow_index)
      launch_with.template operator()<T, true, std::uint32_t>(count, pieces);
    else if (wide)
      launch_with.template operator()<T, true, std::uint64_t>(count, pieces);
    else if (narrow_index)
      launch_with.template operator()<T, false, std::uint32_t>(count, pieces);
    else
      launch_with.template operator()<T, false, std::uint64_t>(count, pieces);
  });
}

void swiglu(const SwigluArgs& args) {
  const OpLaunch launch("swiglu", {&args.gate_up, &args.out});
  choose("swiglu", args.out, {&args.gate_up, &args.out},
         [&]<class T, bool kWide, class Index>(std::int64_t count, std::int64_t pieces) {
           launch(swiglu_kernel<T, kWide, Index>, strided_grid(launch.device(), count, kThreads, 8, 4), kThreads, 0,
                  args.gate_up.data<T>(), args.out.data<T>(), count, pieces);
         });
}

void swiglu_backward(const SwigluBackwardArgs& args) {
  const OpLaunch launch("swiglu_backward", {&args.dout, &args.gate_up, &args.dgate_up});
  choose("swiglu_backward", args.dout, {&args.dout, &args.gate_up, &args.dgate_up},
         [&]<class T, bool kWide, class Index>(std::int64_t count, std::int64_t pieces) {
           launch(swiglu_backward_kernel<T, kWide, Index>, strided_grid(launch.device(), count, kThreads, 5, 4),
                  kThreads, 0, args.dout.data<T>(), args.gate_up.data<T>(), args.dgate_up.data<T>(), count, pieces);
         });
}

QUENCH_CUDA_KERNEL(swiglu_slot, swiglu);
QUENCH_CUDA_KERNEL(swiglu_backward_slot, swiglu_backward);

}  // namespace
}  // namespace quench::cuda
