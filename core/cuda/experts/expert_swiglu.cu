// SwiGLU of expert rows. One CTA per row: a routing weight's gradient is a single reduction.

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pack.cuh"
#include "core/cuda/common/reduce.cuh"
#include "core/cuda/common/swiglu_math.cuh"
#include "core/cuda/quantize/mx_rounding.cuh"
#include "core/ops/experts/token_permutation.h"
#include "core/ops/quantize/round_mx.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 128;

template <int N>
__device__ inline Vector<float, N> times(Vector<float, N> values, float factor) {
#pragma unroll
  for (int j = 0; j < N; ++j) values[j] *= factor;
  return values;
}

// kInput: the weight scales gate and up. kRound: MX rounding; consecutive lanes share a block, rows hold whole blocks.
template <class T, bool kWide, bool kInput, bool kRound>
__global__ __launch_bounds__(kThreads) void expert_swiglu_kernel(const T* gate_up, const float* weights,
                                                                 const std::int32_t* pairs, T* out, int pieces,
                                                                 [[maybe_unused]] MxScale<E4m3> scale) {
  constexpr int kWidth = kWide ? kVectorWidth<T> : 1;
  const std::int64_t row = blockIdx.x;
  const std::int32_t pair = pairs[row];
  const float weight = pair >= 0 ? weights[pair] : 0.0f;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Uniform trip count over a warp.
  for (int first = static_cast<int>(threadIdx.x) - lane; first < pieces; first += kThreads) {
    const int i = first + lane;
    Vector<float, kWidth> result = {};
    if (pair >= 0 && i < pieces) {
      const std::int64_t at = row * 2 * pieces + i;
      const auto gate = unpack(load_packed<T, kWidth>(gate_up, at));
      const auto up = unpack(load_packed<T, kWidth>(gate_up, at + pieces));
      if constexpr (kInput)
        result = swiglu_of(times<kWidth>(gate, weight), times<kWidth>(up, weight));
      else
        result = times<kWidth>(swiglu_of(gate, up), weight);
    }
    if constexpr (kRound) {
      const Packed<T> rounded = round_packed_to_mx<T>(pack<T>(result), scale);
      if (i < pieces) store_packed(out, row * pieces + i, rounded);
    } else if (i < pieces) {
      store_values(out, row * pieces + i, result);
    }
  }
}

template <class T, bool kWide, bool kInput>
__global__ __launch_bounds__(kThreads) void expert_swiglu_backward_kernel(const T* dout, const T* gate_up,
                                                                          const float* weights,
                                                                          const std::int32_t* pairs, T* dgate_up,
                                                                          float* dweights, T* out, int pieces) {
  constexpr int kWidth = kWide ? kVectorWidth<T> : 1;
  __shared__ float scratch[33];
  const std::int64_t row = blockIdx.x;
  const std::int32_t pair = pairs[row];
  const float weight = pair >= 0 ? weights[pair] : 0.0f;
  float product = 0;
  for (int i = static_cast<int>(threadIdx.x); i < pieces; i += kThreads) {
    const std::int64_t at = row * 2 * pieces + i, half = row * pieces + i;
    SwigluGradient<kWidth> gradient = {};
    if (pair >= 0) {
      const auto d = unpack(load_packed<T, kWidth>(dout, half));
      const auto gate = unpack(load_packed<T, kWidth>(gate_up, at));
      const auto up = unpack(load_packed<T, kWidth>(gate_up, at + pieces));
      if constexpr (kInput) {
        gradient = swiglu_gradient(d, times<kWidth>(gate, weight), times<kWidth>(up, weight));
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          product = fmaf(gradient.dgate[j], gate[j], fmaf(gradient.dup[j], up[j], product));
          gradient.dgate[j] *= weight;
          gradient.dup[j] *= weight;
        }
      } else {
        gradient = swiglu_gradient(times<kWidth>(d, weight), gate, up);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          product = fmaf(d[j], gradient.out[j], product);
          gradient.out[j] *= weight;
        }
      }
    }
    if (out != nullptr) store_values(out, half, gradient.out);
    store_values(dgate_up, at, gradient.dgate);
    store_values(dgate_up, at + pieces, gradient.dup);
  }
  product = block_reduce<kThreads>(product, 0.0f, scratch, Sum());
  if (threadIdx.x == 0 && pair >= 0) dweights[pair] = product;
}

template <class T>
bool wide(std::int64_t width, std::initializer_list<const Tensor*> operands) {
  for (const Tensor* t : operands)
    if (t->defined() && !rows_are_wide<T>(t->raw_data(), width, width)) return false;
  return true;
}

void expert_swiglu_cuda(const ExpertSwigluArgs& args) {
  const OpLaunch launch("expert_swiglu", {&args.gate_up, &args.weights, &args.pairs, &args.out});
  const std::int64_t rows = args.out.size(0), width = args.out.size(1);
  dispatch<float, bfloat16>(args.out.dtype(), "expert_swiglu", [&]<class T>() {
    const bool is_wide = wide<T>(width, {&args.gate_up, &args.out});
    const auto of = [&]<bool kInput>(std::bool_constant<kInput>) {
      if (!is_wide) return expert_swiglu_kernel<T, false, kInput, false>;
      return args.round ? expert_swiglu_kernel<T, true, kInput, true> : expert_swiglu_kernel<T, true, kInput, false>;
    };
    launch(args.score_before_experts ? of(std::true_type()) : of(std::false_type()), static_cast<unsigned>(rows),
           kThreads, 0, args.gate_up.data<T>(), args.weights.data<float>(), args.pairs.data<std::int32_t>(),
           args.out.data<T>(), static_cast<int>(is_wide ? width / kVectorWidth<T> : width),
           MxScale<E4m3>{args.round.value_or(MxScaleMode::rceil)});
    if (args.round && !is_wide) round_mx({.x = args.out, .out = args.out, .mode = *args.round});
  });
}

void expert_swiglu_backward_cuda(const ExpertSwigluBackwardArgs& args) {
  const OpLaunch launch("expert_swiglu_backward", {&args.dout, &args.gate_up, &args.weights, &args.pairs,
                                                   &args.dgate_up, &args.dweights, &args.out});
  const std::int64_t rows = args.dout.size(0), width = args.dout.size(1);
  dispatch<float, bfloat16>(args.dout.dtype(), "expert_swiglu_backward", [&]<class T>() {
    const bool is_wide = wide<T>(width, {&args.dout, &args.gate_up, &args.dgate_up, &args.out});
    const auto of = [&]<bool kInput>(std::bool_constant<kInput>) {
      return is_wide ? expert_swiglu_backward_kernel<T, true, kInput> : expert_swiglu_backward_kernel<T, false, kInput>;
    };
    launch(args.score_before_experts ? of(std::true_type()) : of(std::false_type()), static_cast<unsigned>(rows),
           kThreads, 0, args.dout.data<T>(), args.gate_up.data<T>(), args.weights.data<float>(),
           args.pairs.data<std::int32_t>(), args.dgate_up.data<T>(), args.dweights.data<float>(),
           args.out.defined() ? args.out.data<T>() : nullptr,
           static_cast<int>(is_wide ? width / kVectorWidth<T> : width));
  });
}

QUENCH_CUDA_KERNEL(expert_swiglu_slot, expert_swiglu_cuda);
QUENCH_CUDA_KERNEL(expert_swiglu_backward_slot, expert_swiglu_backward_cuda);

}  // namespace
}  // namespace quench::cuda
