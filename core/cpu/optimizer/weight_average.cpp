#include "core/ops/optimizer/weight_average.h"

#include "core/cpu/optimizer/optimizer_common.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

void update_average(const WeightAverageArgs& args, const AveragedTensor& t, std::int64_t begin, std::int64_t end) {
  const Elements param(t.param), average(t.average);
  const bool rounds = t.average.dtype() == DType::bf16;
  const auto share = static_cast<float>(1 - args.decay);
  RandomBits random(args.seed, t.random_stream, args.step, AdamWRounding::param);
  for (std::int64_t base = begin; base < end; base += kBatch) {
    const std::int64_t n = std::min(kBatch, end - base);
    if (rounds) random.fill(static_cast<std::uint64_t>(t.element_offset + base), n);
    for_vectors(n, [&](std::int64_t offset, auto count) {
      const std::int64_t i = base + offset;
      const F32 before = average.get(i, count);
      const F32 after = fma(broadcast(share), param.get(i, count) - before, before);
      if (rounds)
        average.set(i, after, count, random.get(offset));
      else
        average.set(i, after, count);
    });
  }
}

void weight_average_kernel(const WeightAverageArgs& args) {
  for_chunks(args.tensors,
             [&](const AveragedTensor& t, std::int64_t from, std::int64_t to) { update_average(args, t, from, to); });
}

QUENCH_CPU_KERNEL(weight_average_slot, weight_average_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
