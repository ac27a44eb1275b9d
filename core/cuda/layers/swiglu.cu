#include "core/ops/swiglu.h"

#include <algorithm>

#include "core/cuda/common/launch.h"
#include "core/cuda/common/occupancy.cuh"
#include "core/cuda/common/pack.cuh"
#include "core/cuda/common/pdl.cuh"
#include "core/cuda/common/swiglu_math.cuh"
#include "core/cuda/layers/swiglu_codes.h"
#include "core/cuda/layers/swiglu_quant_outputs.h"
#include "core/cuda/quantize/quant_outputs.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;

template <class T, int kWidth>
__device__ inline Vector<float, kWidth> load(const T* pointer, std::int64_t index) {
  if constexpr (kWidth == 1)
    return {to_float(pointer[index])};
  else
    return unpack(load_packed_once(pointer, index));
}

// Grid-stride: body(row, piece) over `count` vectors, `pieces` per row.
template <class Body>
__device__ inline void for_pieces(std::int64_t count, std::int64_t pieces, const Body& body) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const std::int64_t row =
        static_cast<std::int64_t>(static_cast<std::uint64_t>(i) / static_cast<std::uint64_t>(pieces));
    body(row, i - row * pieces);
  }
}

// kAmax: updates the amax.
template <bool kAmax, class T, int N>
__device__ inline void store_result(T* pointer, std::int64_t index, const Vector<float, N>& values,
                                    RunningMax<T>& most) {
  const Packed<T, N> packed = pack<T>(values);
  reinterpret_cast<Packed<T, N>*>(pointer)[index] = packed;
  if constexpr (kAmax) most.add(packed);
}

template <class T>
__device__ inline void finish_amax(std::uint32_t* amax, const RunningMax<T>& most) {
  __shared__ BlockMax::Scratch scratch;
  BlockMax block_max(scratch);
  raise_amax(amax, most.word(), block_max);
}

// 6 I bytes per row in bf16.
template <class T, bool kWide, bool kAmax, GatedActivation kActivation>
__global__ __launch_bounds__(kThreads,
                             ctas_per_sm<kThreads>(8)) void swiglu_kernel(const T* gate_up, T* out, std::int64_t count,
                                                                          std::int64_t pieces, std::uint32_t* amax) {
  pdl_sync();
  constexpr int kWidth = kWide ? kVectorWidth<T> : 1;
  RunningMax<T> most;
  for_pieces(count, pieces, [&](std::int64_t row, std::int64_t piece) {
    const std::int64_t gate_index = row * 2 * pieces + piece;
    const auto gate = load<T, kWidth>(gate_up, gate_index), up = load<T, kWidth>(gate_up, gate_index + pieces);
    store_result<kAmax>(out, row * pieces + piece, swiglu_of<kActivation>(gate, up), most);
  });
  if constexpr (kAmax) finish_amax(amax, most);
}

// 10 I bytes per row in bf16; 2 I more with `out` (recomputed forward output).
template <class T, bool kWide, bool kAmax, GatedActivation kActivation>
__global__ __launch_bounds__(kThreads, 5) void swiglu_backward_kernel(const T* dout, const T* gate_up, T* dgate_up,
                                                                      T* out, std::int64_t count, std::int64_t pieces,
                                                                      std::uint32_t* amax) {
  constexpr int kWidth = kWide ? kVectorWidth<T> : 1;
  RunningMax<T> most;
  for_pieces(count, pieces, [&](std::int64_t row, std::int64_t piece) {
    const std::int64_t gate_index = row * 2 * pieces + piece;
    const auto d = load<T, kWidth>(dout, row * pieces + piece);
    const auto gate = load<T, kWidth>(gate_up, gate_index), up = load<T, kWidth>(gate_up, gate_index + pieces);
    const auto gradient = swiglu_gradient<kActivation>(d, gate, up);
    if (out != nullptr) store_values(out, row * pieces + piece, gradient.out);
    store_result<kAmax>(dgate_up, gate_index, gradient.dgate, most);
    store_result<kAmax>(dgate_up, gate_index + pieces, gradient.dup, most);
  });
  if constexpr (kAmax) finish_amax(amax, most);
}

template <class LaunchWith>
void choose(std::string_view op, const Tensor& half, std::initializer_list<const Tensor*> operands,
            const QuantOutputs& quant_outputs, GatedActivation activation, const LaunchWith& launch_with) {
  const std::int64_t n = half.size(0), width = half.size(1);
  dispatch<float, bfloat16>(half.dtype(), op, [&]<class T>() {
    const bool wide = std::all_of(operands.begin(), operands.end(),
                                  [&](const Tensor* t) { return rows_are_wide<T>(t->raw_data(), width, width); });
    const std::int64_t pieces = wide ? width / kVectorWidth<T> : width, count = n * pieces;
    const auto with = [&]<bool kAmax, GatedActivation kActivation>() {
      if (wide)
        launch_with.template operator()<T, true, kAmax, kActivation>(count, pieces);
      else
        launch_with.template operator()<T, false, kAmax, kActivation>(count, pieces);
    };
    const auto of = [&]<GatedActivation kActivation>() {
      if (quant_outputs.amax.defined())
        with.template operator()<true, kActivation>();
      else
        with.template operator()<false, kActivation>();
    };
    if (activation == GatedActivation::silu)
      of.template operator()<GatedActivation::silu>();
    else
      of.template operator()<GatedActivation::gelu_tanh>();
  });
}

Tensor half_of(const Tensor& gate_up) {
  return Tensor::empty({gate_up.size(0), gate_up.size(1) / 2}, gate_up.dtype(), gate_up.device());
}

// Parts that these kernels do not fuse.
void fill_rest(QuantOutputs quant_outputs, const Tensor& result) {
  quant_outputs.amax = Tensor();
  fill_quant_outputs(quant_outputs, result);
}

void swiglu(const SwigluArgs& given) {
  SwigluArgs args = given;
  const OpLaunch launch("swiglu", {&args.gate_up, &args.out});
  if (args.quant_outputs.has_codes()) {
    if (swiglu_codes(launch, args)) return;
    if (!args.out.defined()) args.out = half_of(args.gate_up);
  }
  if (parts_of(args.quant_outputs) == QuantOutputParts::rows && swiglu_by_rows(launch, args)) return;
  choose("swiglu", args.out, {&args.gate_up, &args.out}, args.quant_outputs, args.activation,
         [&]<class T, bool kWide, bool kAmax, GatedActivation kActivation>(std::int64_t count, std::int64_t pieces) {
           launch.early(args.out.size(0), swiglu_kernel<T, kWide, kAmax, kActivation>,
                        strided_grid(launch.device(), count, kThreads, 8, 4), kThreads, 0, args.gate_up.data<T>(),
                        args.out.data<T>(), count, pieces, QuantOutputPointers(args.quant_outputs).amax);
         });
  fill_rest(args.quant_outputs, args.out);
}

void swiglu_backward(const SwigluBackwardArgs& given) {
  SwigluBackwardArgs args = given;
  const OpLaunch launch("swiglu_backward", {&args.dout, &args.gate_up, &args.dgate_up, &args.out});
  if (args.quant_outputs.has_codes() || args.out_codes.has_codes()) {
    if (swiglu_backward_codes(launch, args)) return;
    if (!args.dgate_up.defined()) args.dgate_up = Tensor::empty_like(args.gate_up);
    if (!args.out.defined() && args.out_codes.has_codes()) args.out = half_of(args.gate_up);
  }
  if (parts_of(args.quant_outputs) == QuantOutputParts::rows && swiglu_backward_by_rows(launch, args))
    return args.out_codes.has_codes() ? fill_quant_outputs(args.out_codes, args.out) : void();
  const Tensor& again = args.out.defined() ? args.out : args.dout;
  choose("swiglu_backward", args.dout, {&args.dout, &args.gate_up, &args.dgate_up, &again}, args.quant_outputs,
         args.activation,
         [&]<class T, bool kWide, bool kAmax, GatedActivation kActivation>(std::int64_t count, std::int64_t pieces) {
           launch(swiglu_backward_kernel<T, kWide, kAmax, kActivation>,
                  strided_grid(launch.device(), count, kThreads, 5, 4), kThreads, 0, args.dout.data<T>(),
                  args.gate_up.data<T>(), args.dgate_up.data<T>(), args.out.defined() ? args.out.data<T>() : nullptr,
                  count, pieces, QuantOutputPointers(args.quant_outputs).amax);
         });
  fill_rest(args.quant_outputs, args.dgate_up);
  if (args.out_codes.has_codes()) fill_quant_outputs(args.out_codes, args.out);
}

QUENCH_CUDA_KERNEL(swiglu_slot, swiglu);
QUENCH_CUDA_KERNEL(swiglu_backward_slot, swiglu_backward);

}  // namespace
}  // namespace quench::cuda
