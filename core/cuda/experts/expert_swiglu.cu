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

enum class Unit { silu, weighted_input, clamped };  // weighted_input: the weight scales gate and up

// ClampedUnit, NaN propagates.
__device__ inline float clamped_gate(const ClampedUnit& unit, float x) {
  return x > unit.limit ? unit.limit : x;
}
__device__ inline float clamped_up(const ClampedUnit& unit, float x) {
  return x < -unit.limit ? -unit.limit : clamped_gate(unit, x);
}
template <int N>
__device__ inline Vector<float, N> clamped_of(const ClampedUnit& unit, const Vector<float, N>& gate,
                                              const Vector<float, N>& up) {
  Vector<float, N> result;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float g = clamped_gate(unit, gate[j]);
    result[j] = g * sigmoid(unit.slope * g) * (clamped_up(unit, up[j]) + 1.0f);
  }
  return result;
}
template <int N>
__device__ inline SwigluGradient<N> clamped_gradient(const ClampedUnit& unit, const Vector<float, N>& d,
                                                     const Vector<float, N>& gate, const Vector<float, N>& up) {
  SwigluGradient<N> result;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float g = clamped_gate(unit, gate[j]), u = clamped_up(unit, up[j]) + 1.0f, s = sigmoid(unit.slope * g);
    const float value = g * s;
    result.dgate[j] = gate[j] > unit.limit ? 0.0f : d[j] * u * fmaf(unit.slope * value, 1.0f - s, s);
    result.dup[j] = up[j] > unit.limit || up[j] < -unit.limit ? 0.0f : d[j] * value;
    result.out[j] = value * u;
  }
  return result;
}

// kRound: MX rounding; consecutive lanes share a block, rows hold whole blocks.
template <class T, bool kWide, Unit kUnit, bool kRound>
__global__ __launch_bounds__(kThreads) void expert_swiglu_kernel(const T* gate_up, const float* weights,
                                                                 const std::int32_t* pairs, T* out, int pieces,
                                                                 [[maybe_unused]] MxScale<E4m3> scale,
                                                                 [[maybe_unused]] ClampedUnit unit) {
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
      if constexpr (kUnit == Unit::weighted_input)
        result = swiglu_of(times<kWidth>(gate, weight), times<kWidth>(up, weight));
      else if constexpr (kUnit == Unit::clamped)
        result = times<kWidth>(clamped_of(unit, gate, up), weight);
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

template <class T, bool kWide, Unit kUnit>
__global__ __launch_bounds__(kThreads) void expert_swiglu_backward_kernel(const T* dout, const T* gate_up,
                                                                          const float* weights,
                                                                          const std::int32_t* pairs, T* dgate_up,
                                                                          float* dweights, T* out, int pieces,
                                                                          [[maybe_unused]] ClampedUnit unit) {
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
      if constexpr (kUnit == Unit::weighted_input) {
        gradient = swiglu_gradient(d, times<kWidth>(gate, weight), times<kWidth>(up, weight));
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          product = fmaf(gradient.dgate[j], gate[j], fmaf(gradient.dup[j], up[j], product));
          gradient.dgate[j] *= weight;
          gradient.dup[j] *= weight;
        }
      } else {
        if constexpr (kUnit == Unit::clamped)
          gradient = clamped_gradient(unit, times<kWidth>(d, weight), gate, up);
        else
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

template <class Of>
auto of_unit(const std::optional<ClampedUnit>& clamped, bool score_before_experts, const Of& of) {
  if (clamped) return of(std::integral_constant<Unit, Unit::clamped>());
  return score_before_experts ? of(std::integral_constant<Unit, Unit::weighted_input>())
                              : of(std::integral_constant<Unit, Unit::silu>());
}

void expert_swiglu_cuda(const ExpertSwigluArgs& args) {
  const OpLaunch launch("expert_swiglu", {&args.gate_up, &args.weights, &args.pairs, &args.out});
  const std::int64_t rows = args.out.size(0), width = args.out.size(1);
  dispatch<float, bfloat16>(args.out.dtype(), "expert_swiglu", [&]<class T>() {
    const bool is_wide = wide<T>(width, {&args.gate_up, &args.out});
    const auto of = [&]<Unit kUnit>(std::integral_constant<Unit, kUnit>) {
      if (!is_wide) return expert_swiglu_kernel<T, false, kUnit, false>;
      return args.round ? expert_swiglu_kernel<T, true, kUnit, true> : expert_swiglu_kernel<T, true, kUnit, false>;
    };
    launch(of_unit(args.clamped, args.score_before_experts, of), static_cast<unsigned>(rows), kThreads, 0,
           args.gate_up.data<T>(), args.weights.data<float>(), args.pairs.data<std::int32_t>(), args.out.data<T>(),
           static_cast<int>(is_wide ? width / kVectorWidth<T> : width),
           MxScale<E4m3>{args.round.value_or(MxScaleMode::rceil)}, args.clamped.value_or(ClampedUnit{}));
    if (args.round && !is_wide) round_mx({.x = args.out, .out = args.out, .mode = *args.round});
  });
}

void expert_swiglu_backward_cuda(const ExpertSwigluBackwardArgs& args) {
  const OpLaunch launch("expert_swiglu_backward", {&args.dout, &args.gate_up, &args.weights, &args.pairs,
                                                   &args.dgate_up, &args.dweights, &args.out});
  const std::int64_t rows = args.dout.size(0), width = args.dout.size(1);
  dispatch<float, bfloat16>(args.dout.dtype(), "expert_swiglu_backward", [&]<class T>() {
    const bool is_wide = wide<T>(width, {&args.dout, &args.gate_up, &args.dgate_up, &args.out});
    const auto of = [&]<Unit kUnit>(std::integral_constant<Unit, kUnit>) {
      return is_wide ? expert_swiglu_backward_kernel<T, true, kUnit> : expert_swiglu_backward_kernel<T, false, kUnit>;
    };
    launch(of_unit(args.clamped, args.score_before_experts, of), static_cast<unsigned>(rows), kThreads, 0,
           args.dout.data<T>(), args.gate_up.data<T>(), args.weights.data<float>(), args.pairs.data<std::int32_t>(),
           args.dgate_up.data<T>(), args.dweights.data<float>(), args.out.defined() ? args.out.data<T>() : nullptr,
           static_cast<int>(is_wide ? width / kVectorWidth<T> : width), args.clamped.value_or(ClampedUnit{}));
  });
}

QUENCH_CUDA_KERNEL(expert_swiglu_slot, expert_swiglu_cuda);
QUENCH_CUDA_KERNEL(expert_swiglu_backward_slot, expert_swiglu_backward_cuda);

}  // namespace
}  // namespace quench::cuda
