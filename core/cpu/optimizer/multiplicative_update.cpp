#include "core/ops/optimizer/multiplicative_update.h"

#include "core/cpu/optimizer/optimizer_common.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

void relative_update(const MultiplicativeUpdateArgs& args, const MultiplicativeUpdateTensor& t, std::int64_t begin,
                     std::int64_t end) {
  const bool has_master = t.master.defined();
  const bool rounds = args.stochastic_rounding && !has_master && t.param.dtype() == DType::bf16;
  const Elements param(t.param), weights(has_master ? t.master : t.param), relative(t.relative);
  RandomBits random(args.seed, t.random_stream, args.step, AdamWRounding::param);
  for (std::int64_t base = begin; base < end; base += kBatch) {
    const std::int64_t n = std::min(kBatch, end - base);
    if (rounds) random.fill(static_cast<std::uint64_t>(t.element_offset + base), n);
    for_vectors(n, [&](std::int64_t offset, auto count) {
      const std::int64_t i = base + offset;
      const F32 p = weights.get(i, count), d = relative.get(i, count);
      const F32 stepped = select(d < 0.0f, p / (1.0f - d), p * (1.0f + d));
      // min and max return the second operand for NaN.
      const F32 next = min(broadcast(kMostRelativeValue), max(broadcast(kLeastRelativeValue), stepped));
      if (has_master) weights.set(i, next, count);
      if (rounds)
        param.set(i, next, count, random.get(offset));
      else
        param.set(i, next, count);
    });
  }
}

void multiplicative_update_kernel(const MultiplicativeUpdateArgs& args) {
  for_chunks(args.tensors, [&](const MultiplicativeUpdateTensor& t, std::int64_t from, std::int64_t to) {
    relative_update(args, t, from, to);
  });
}

QUENCH_CPU_KERNEL(multiplicative_update_slot, multiplicative_update_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
