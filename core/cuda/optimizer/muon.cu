#include "core/ops/optimizer/muon.h"

#include "core/cuda/common/launch.h"
#include "core/cuda/common/reduce.cuh"
#include "core/cuda/optimizer/adamw_math.cuh"
#include "core/cuda/optimizer/elements.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256, kWidth = 4;

__device__ float scale_of(const float* grad_scale) {
  return grad_scale != nullptr ? *grad_scale : 1.0f;
}
const float* address_of(const Tensor& grad_scale) {
  return grad_scale.defined() ? grad_scale.data<float>() : nullptr;
}

dim3 grid_for(std::int64_t n) {
  return dim3(static_cast<unsigned>((n + kThreads * kWidth - 1) / (kThreads * kWidth)));
}
template <class Body>
__device__ void for_elements(std::int64_t n, bool wide, const Body& body) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kWidth;
  if (i + kWidth <= n && wide) {
    body.template operator()<kWidth>(i);
  } else {
    for (std::int64_t j = i; j < min(i + kWidth, n); ++j) body.template operator()<1>(j);
  }
}

__global__ __launch_bounds__(kThreads) void momentum_kernel(Elements grad, Elements momentum, Elements update,
                                                            std::int64_t n, bool wide, float beta, bool nesterov,
                                                            const float* grad_scale) {
  const float scale = scale_of(grad_scale);
  const bool updates = isfinite(scale);
  for_elements(n, wide, [&]<int N>(std::int64_t i) {
    Vector<float, N> result{};
    if (updates) {
      const Vector<float, N> g = grad.load<N>(i);
      Vector<float, N> m = momentum.load<N>(i);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float x = g[j] * scale;
        m[j] = fmaf(1.0f - beta, x - m[j], m[j]);
        result[j] = nesterov ? fmaf(beta, m[j] - x, x) : m[j];
      }
      momentum.store(i, m);
    }
    update.store(i, result);
  });
}

// One CTA per matrix.
__global__ __launch_bounds__(kThreads) void inverse_norms_kernel(const bfloat16* grams, std::int64_t n, float least,
                                                                 float* inverse_norms) {
  __shared__ double scratch[33];
  const bfloat16* gram = grams + std::int64_t{blockIdx.x} * n * n;
  double trace = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) trace += static_cast<double>(to_float(gram[i * n + i]));
  trace = block_reduce<kThreads>(trace, 0.0, scratch, Sum());
  if (threadIdx.x == 0) inverse_norms[blockIdx.x] = 1.0f / fmaxf(static_cast<float>(sqrt(trace)), least);
}

__global__ __launch_bounds__(kThreads) void normalize_kernel(Elements grams, std::int64_t n, bool wide,
                                                             const float* inverse_norms) {
  const float inverse = inverse_norms[blockIdx.y], factor = inverse * inverse;
  const std::int64_t first = std::int64_t{blockIdx.y} * n;
  for_elements(n, wide, [&]<int N>(std::int64_t i) {
    Vector<float, N> value = grams.load<N>(first + i);
#pragma unroll
    for (int j = 0; j < N; ++j) value[j] *= factor;
    grams.store(first + i, value);
  });
}

__global__ __launch_bounds__(kThreads) void apply_kernel(Elements param, Elements weights, Elements update,
                                                         std::int64_t n, bool wide, bool has_master, bool rounds,
                                                         float decay, float step_size, const float* grad_scale,
                                                         std::uint64_t key, std::uint64_t step,
                                                         std::uint64_t element_offset) {
  if (!isfinite(scale_of(grad_scale))) return;
  for_elements(n, wide, [&]<int N>(std::int64_t i) {
    Vector<float, N> p = weights.load<N>(i);
    const Vector<float, N> u = update.load<N>(i);
#pragma unroll
    for (int j = 0; j < N; ++j) p[j] = fmaf(step_size, u[j], p[j] * decay);
    if (has_master) weights.store(i, p);
    if (rounds)
      param.store_stochastic(i, p, RandomBits<1, N>(key, step, element_offset + static_cast<std::uint64_t>(i)),
                             AdamWRounding::param);
    else
      param.store(i, p);
  });
}

void muon_momentum(const MuonMomentumArgs& args) {
  const OpLaunch launch("muon_momentum", {&args.grad, &args.momentum, &args.update});
  const std::int64_t n = args.grad.numel();
  launch(momentum_kernel, grid_for(n), kThreads, 0, Elements::of(args.grad), Elements::of(args.momentum),
         Elements::of(args.update), n, are_wide({&args.grad, &args.momentum, &args.update}), args.beta, args.nesterov,
         address_of(args.grad_scale));
}

void normalize_gram(const NormalizeGramArgs& args) {
  const OpLaunch launch("normalize_gram", {&args.gram, &args.inverse_norms});
  const std::int64_t n = args.gram.size(1);
  const auto batch = static_cast<unsigned>(args.gram.size(0));
  launch(inverse_norms_kernel, batch, kThreads, 0, args.gram.data<bfloat16>(), n, args.least,
         args.inverse_norms.data<float>());
  dim3 grid = grid_for(n * n);
  grid.y = batch;
  launch(normalize_kernel, grid, kThreads, 0, Elements::of(args.gram), n * n,
         are_wide({&args.gram}) && n * n % kWidth == 0, args.inverse_norms.data<float>());
}

void muon_apply(const MuonApplyArgs& args) {
  const OpLaunch launch("muon_apply", {&args.param, &args.master, &args.update});
  const std::int64_t n = args.param.numel();
  const bool has_master = args.master.defined();
  const Tensor& weights = has_master ? args.master : args.param;
  const bool rounds = args.stochastic_rounding && !has_master && args.param.dtype() == DType::bf16;
  const bool wide = are_wide({&args.param, &weights, &args.update}) && args.element_offset % 8 == 0;
  launch(apply_kernel, grid_for(n), kThreads, 0, Elements::of(args.param), Elements::of(weights),
         Elements::of(args.update), n, wide, has_master, rounds, args.decay, args.step_size,
         address_of(args.grad_scale), philox_key(args.seed, args.random_stream), static_cast<std::uint64_t>(args.step),
         static_cast<std::uint64_t>(args.element_offset));
}

QUENCH_CUDA_KERNEL(muon_momentum_slot, muon_momentum);
QUENCH_CUDA_KERNEL(normalize_gram_slot, normalize_gram);
QUENCH_CUDA_KERNEL(muon_apply_slot, muon_apply);

}  // namespace
}  // namespace quench::cuda
