#include "core/ops/optimizer/muon.h"

#include <algorithm>

#include "core/cpu/optimizer/optimizer_common.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

float scale_of(const Tensor& grad_scale) {
  return grad_scale.defined() ? *grad_scale.data<float>() : 1.0f;
}

template <class Body>
void for_batches(std::int64_t n, const Body& body) {
  const std::int64_t batches = (n + kBatch - 1) / kBatch;
  parallel_ranges(batches, n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) body(b * kBatch, std::min(kBatch, n - b * kBatch));
  });
}

void muon_momentum_kernel(const MuonMomentumArgs& args) {
  const float scale = scale_of(args.grad_scale), beta = args.beta;
  if (!std::isfinite(scale)) {
    auto* update = args.update.data<bfloat16>();
    std::fill(update, update + args.update.numel(), bfloat16{});
    return;
  }
  const Elements grad(args.grad), momentum(args.momentum), update(args.update);
  for_batches(args.grad.numel(), [&](std::int64_t base, std::int64_t n) {
    for_vectors(n, [&](std::int64_t offset, auto count) {
      const std::int64_t i = base + offset;
      const F32 g = grad.get(i, count) * scale;
      F32 m = momentum.get(i, count);
      m = fma(broadcast(1.0f - beta), g - m, m);
      momentum.set(i, m, count);
      update.set(i, args.nesterov ? fma(broadcast(beta), m - g, g) : m, count);
    });
  });
}

void normalize_gram_kernel(const NormalizeGramArgs& args) {
  const std::int64_t n = args.gram.size(1);
  for (std::int64_t matrix = 0; matrix < args.gram.size(0); ++matrix) {
    const Tensor one = args.gram.select(0, matrix);
    double trace = 0;
    for (std::int64_t i = 0; i < n; ++i)
      trace += static_cast<double>(static_cast<float>(one.data<bfloat16>()[i * n + i]));
    const float inverse = 1.0f / std::max(static_cast<float>(std::sqrt(trace)), args.least);
    args.inverse_norms.data<float>()[matrix] = inverse;
    const Elements gram(one);
    for_batches(n * n, [&](std::int64_t base, std::int64_t count) {
      for_vectors(count, [&](std::int64_t offset, auto width) {
        gram.set(base + offset, gram.get(base + offset, width) * (inverse * inverse), width);
      });
    });
  }
}

void muon_apply_kernel(const MuonApplyArgs& args) {
  if (!std::isfinite(scale_of(args.grad_scale))) return;
  const bool has_master = args.master.defined();
  const bool rounds = args.stochastic_rounding && !has_master && args.param.dtype() == DType::bf16;
  const Elements param(args.param), weights(has_master ? args.master : args.param), update(args.update);
  for_batches(args.param.numel(), [&](std::int64_t base, std::int64_t n) {
    RandomBits random(args.seed, args.random_stream, args.step, AdamWRounding::param);
    if (rounds) random.fill(static_cast<std::uint64_t>(args.element_offset + base), n);
    for_vectors(n, [&](std::int64_t offset, auto count) {
      const std::int64_t i = base + offset;
      const F32 p = fma(broadcast(args.step_size), update.get(i, count), weights.get(i, count) * args.decay);
      if (has_master) weights.set(i, p, count);
      if (rounds)
        param.set(i, p, count, random.get(offset));
      else
        param.set(i, p, count);
    });
  });
}

QUENCH_CPU_KERNEL(muon_momentum_slot, muon_momentum_kernel);
QUENCH_CPU_KERNEL(normalize_gram_slot, normalize_gram_kernel);
QUENCH_CPU_KERNEL(muon_apply_slot, muon_apply_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
