#include "core/ops/optimizer/sgd.h"

#include "core/cuda/common/launch.h"
#include "core/cuda/common/tensor_chunks.cuh"
#include "core/cuda/optimizer/adamw_math.cuh"
#include "core/cuda/optimizer/elements.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256, kChunk = 16 * 1024;

struct Entry {
  Elements param, grad, momentum, weights;  // weights: master, or param
  std::int64_t numel;
  std::uint64_t philox_key, element_offset;
  float decay;
  bool has_master, has_momentum, param_rounds, momentum_rounds;
  bool wide;  // vector-aligned addresses; element_offset aligned to random blocks
};
constexpr int kCapacity = 256;
using Table = ChunkTable<Entry, kCapacity>;

struct Coefficients {
  float momentum, step_size;
  bool nesterov;
  std::uint64_t step;
  const float* grad_scale;  // optional
};
static_assert(sizeof(Table) + sizeof(Coefficients) <= kMaxParameterBytes);

template <int N>
__device__ void update(const Entry& e, const Coefficients& c, float grad_scale, std::int64_t i) {
  Vector<float, N> p = e.weights.load<N>(i), g = e.grad.load<N>(i);
#pragma unroll
  for (int j = 0; j < N; ++j) g[j] = fmaf(e.decay, p[j], g[j] * grad_scale);
  constexpr unsigned kBoth = 1u << number_of(AdamWRounding::param) | 1u << number_of(AdamWRounding::exp_avg);
  const bool draws = e.param_rounds || e.momentum_rounds;
  const RandomBits<kBoth, N> random =
      draws ? RandomBits<kBoth, N>(e.philox_key, c.step, e.element_offset + i) : RandomBits<kBoth, N>();
  if (e.has_momentum) {
    Vector<float, N> b = e.momentum.load<N>(i);
#pragma unroll
    for (int j = 0; j < N; ++j) b[j] = fmaf(c.momentum, b[j], g[j]);
    if (e.momentum_rounds)
      e.momentum.store_stochastic(i, b, random, AdamWRounding::exp_avg);
    else
      e.momentum.store(i, b);
#pragma unroll
    for (int j = 0; j < N; ++j) g[j] = c.nesterov ? fmaf(c.momentum, b[j], g[j]) : b[j];
  }
#pragma unroll
  for (int j = 0; j < N; ++j) p[j] = fmaf(c.step_size, g[j], p[j]);
  if (e.has_master) e.weights.store(i, p);
  if (e.param_rounds)
    e.param.store_stochastic(i, p, random, AdamWRounding::param);
  else
    e.param.store(i, p);
}

__global__ __launch_bounds__(kThreads) void sgd_kernel(const __grid_constant__ Table table,
                                                       const __grid_constant__ Coefficients c) {
  const float grad_scale = c.grad_scale != nullptr ? *c.grad_scale : 1.0f;
  if (!isfinite(grad_scale)) return;
  const TensorChunk chunk = table.chunk<kChunk>();
  chunk.for_each<kThreads>([&]<int N>(std::int64_t i) { update<N>(chunk.entry, c, grad_scale, i); });
}

Entry entry(const SgdArgs& args, const SgdTensor& t) {
  const bool has_master = t.master.defined(), has_momentum = t.momentum.defined();
  const Tensor& weights = has_master ? t.master : t.param;
  const Tensor& momentum = has_momentum ? t.momentum : t.param;
  return {.param = Elements::of(t.param),
          .grad = Elements::of(t.grad),
          .momentum = Elements::of(momentum),
          .weights = Elements::of(weights),
          .numel = t.param.numel(),
          .philox_key = philox_key(args.seed, t.random_stream),
          .element_offset = static_cast<std::uint64_t>(t.element_offset),
          .decay = static_cast<float>(t.weight_decay),
          .has_master = has_master,
          .has_momentum = has_momentum,
          .param_rounds = args.stochastic_rounding && !has_master && t.param.dtype() == DType::bf16,
          .momentum_rounds = args.stochastic_rounding && has_momentum && t.momentum.dtype() == DType::bf16,
          .wide = are_wide({&t.param, &t.grad, &momentum, &weights}) && t.element_offset % 8 == 0};
}

void sgd(const SgdArgs& args) {
  const SgdTensor& first = args.tensors.front();
  const OpLaunch launch("sgd", {&first.param, &first.grad, &first.momentum, &first.master});
  const Coefficients c{.momentum = static_cast<float>(args.momentum),
                       .step_size = static_cast<float>(-args.lr),
                       .nesterov = args.nesterov,
                       .step = static_cast<std::uint64_t>(args.step),
                       .grad_scale = args.grad_scale.defined() ? args.grad_scale.data<float>() : nullptr};
  const auto launch_table = [&](const Table& table) {
    launch(sgd_kernel, dim3(static_cast<unsigned>(table.chunks())), kThreads, 0, table, c);
  };
  for_tables<Table>(
      args.tensors, kChunk, &Entry::numel, [&](const SgdTensor& t) { return entry(args, t); }, launch_table);
}

QUENCH_CUDA_KERNEL(sgd_slot, sgd);

}  // namespace
}  // namespace quench::cuda
