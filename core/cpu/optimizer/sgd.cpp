#include "core/ops/optimizer/sgd.h"

#include "core/cpu/optimizer/optimizer_common.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

void update(const SgdArgs& args, const SgdTensor& t, float grad_scale, std::int64_t begin, std::int64_t end) {
  const Elements param(t.param), grad(t.grad);
  const bool has_master = t.master.defined(), has_momentum = t.momentum.defined();
  const Elements weights(has_master ? t.master : t.param), momentum(has_momentum ? t.momentum : t.param);
  const bool param_rounds = args.stochastic_rounding && !has_master && t.param.dtype() == DType::bf16;
  const bool momentum_rounds = args.stochastic_rounding && has_momentum && t.momentum.dtype() == DType::bf16;
  const auto random = [&](AdamWRounding what) { return RandomBits(args.seed, t.random_stream, args.step, what); };
  RandomBits param_random = random(AdamWRounding::param), momentum_random = random(AdamWRounding::exp_avg);
  const auto decay = static_cast<float>(t.weight_decay), beta = static_cast<float>(args.momentum),
             step_size = static_cast<float>(-args.lr);
  for (std::int64_t base = begin; base < end; base += kBatch) {
    const std::int64_t n = std::min(kBatch, end - base);
    const auto first = static_cast<std::uint64_t>(t.element_offset + base);
    if (param_rounds) param_random.fill(first, n);
    if (momentum_rounds) momentum_random.fill(first, n);
    for_vectors(n, [&](std::int64_t offset, auto count) {
      const std::int64_t i = base + offset;
      F32 p = weights.get(i, count);
      F32 g = fma(broadcast(decay), p, grad.get(i, count) * grad_scale);
      if (has_momentum) {
        const F32 b = fma(broadcast(beta), momentum.get(i, count), g);
        if (momentum_rounds)
          momentum.set(i, b, count, momentum_random.get(offset));
        else
          momentum.set(i, b, count);
        g = args.nesterov ? fma(broadcast(beta), b, g) : b;
      }
      p = fma(broadcast(step_size), g, p);
      if (has_master) weights.set(i, p, count);
      if (param_rounds)
        param.set(i, p, count, param_random.get(offset));
      else
        param.set(i, p, count);
    });
  }
}

void sgd_kernel(const SgdArgs& args) {
  const float grad_scale = args.grad_scale.defined() ? *args.grad_scale.data<float>() : 1.0f;
  if (!std::isfinite(grad_scale)) return;
  for_chunks(args.tensors,
             [&](const SgdTensor& t, std::int64_t from, std::int64_t to) { update(args, t, grad_scale, from, to); });
}

QUENCH_CPU_KERNEL(sgd_slot, sgd_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
