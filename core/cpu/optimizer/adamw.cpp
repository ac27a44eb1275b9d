#include "core/ops/optimizer/adamw.h"

#include "core/cpu/optimizer/optimizer_common.h"
#include "core/ops/quantize/quantize.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// Split master weights of a bf16 param (core/number/split_f32.h).
class SplitWeights {
 public:
  SplitWeights(const Tensor& param, const Tensor& low) : upper_(param.raw_data()), low_(low.raw_data()) {}
  template <class Count>
  QUENCH_INLINE F32 get(std::int64_t i, Count count) const {
    const U32 low = widen_u16(load_u16(static_cast<const std::uint16_t*>(low_) + i, count));
    const U32 upper = widen_u16(load_u16(static_cast<const std::uint16_t*>(upper_) + i, count));
    return as_f32((upper << 16) + ((low ^ 0x8000u) - 0x8000u));
  }
  template <class Count>
  QUENCH_INLINE void set(std::int64_t i, F32 x, Count count) const {
    const U32 upper = round_to_bfloat16(x), difference = as_u32(x) - (upper << 16);
    const U32 most = broadcast_u32(0x7FFFu);
    const U32 low = select(x == x, select(std::bit_cast<I32>(difference) < 0x7FFF, difference, most), U32{});
    store_u16(static_cast<std::uint16_t*>(upper_) + i, narrow_to_u16(upper), count);
    store_u16(static_cast<std::uint16_t*>(low_) + i, narrow_to_u16(low & 0xFFFFu), count);
  }

 private:
  void *upper_, *low_;
};

// kSplit: t.master is i16.
template <bool kStochastic, bool kSplit>
void update(const AdamWArgs& args, const AdamWTensor& t, const Coefficients& c, std::int64_t begin, std::int64_t end) {
  const Elements param(t.param), grad(t.grad), exp_avg(t.exp_avg), exp_avg_sq(t.exp_avg_sq);
  const bool has_master = t.master.defined();
  const Elements weights(has_master && !kSplit ? t.master : t.param);
  const SplitWeights split(t.param, kSplit ? t.master : t.param);
  const auto random = [&](AdamWRounding what) { return RandomBits(args.seed, t.random_stream, args.step, what); };
  RandomBits param_random = random(AdamWRounding::param), first_random = random(AdamWRounding::exp_avg),
             second_random = random(AdamWRounding::exp_avg_sq);
  for (std::int64_t base = begin; base < end; base += kBatch) {
    const std::int64_t n = std::min(kBatch, end - base);
    if constexpr (kStochastic) {
      const auto first = static_cast<std::uint64_t>(t.element_offset + base);
      if (!has_master && t.param.dtype() == DType::bf16) param_random.fill(first, n);
      if (t.exp_avg.dtype() == DType::bf16) first_random.fill(first, n);
      if (t.exp_avg_sq.dtype() == DType::bf16) second_random.fill(first, n);
    }
    for_vectors(n, [&](std::int64_t offset, auto count) {
      const std::int64_t i = base + offset;
      const F32 g = grad.get(i, count) * c.grad_scale;
      F32 m = exp_avg.get(i, count), v = exp_avg_sq.get(i, count);
      F32 p = (kSplit ? split.get(i, count) : weights.get(i, count)) * c.decay;
      m = fma(broadcast(c.weight1), g - m, m);
      v = fma(broadcast(c.weight2), g * g, v * c.beta2);
      const F32 denominator = sqrt(v) / c.bias2 + c.eps;
      p = fma(broadcast(c.step_size), m / denominator, p);
      if constexpr (kStochastic) {
        exp_avg.set(i, m, count, first_random.get(offset));
        exp_avg_sq.set(i, v, count, second_random.get(offset));
        if (!has_master) param.set(i, p, count, param_random.get(offset));
      } else {
        exp_avg.set(i, m, count);
        exp_avg_sq.set(i, v, count);
        if (!has_master) param.set(i, p, count);
      }
      if (kSplit) {
        split.set(i, p, count);
      } else if (has_master) {
        weights.set(i, p, count);
        param.set(i, p, count);
      }
    });
  }
}

void update_all(const AdamWArgs& args) {
  const float grad_scale = args.grad_scale.defined() ? *args.grad_scale.data<float>() : 1.0f;
  if (!std::isfinite(grad_scale)) return;
  for_chunks(args.tensors, [&](const AdamWTensor& t, std::int64_t from, std::int64_t to) {
    const Coefficients c = coefficients(args, t.weight_decay, grad_scale);
    const bool rounds = (t.param.dtype() == DType::bf16 && !t.master.defined()) || t.exp_avg.dtype() == DType::bf16 ||
                        t.exp_avg_sq.dtype() == DType::bf16;
    const bool stochastic = args.stochastic_rounding && rounds;
    if (t.master.defined() && t.master.dtype() == DType::i16)
      (stochastic ? update<true, true> : update<false, true>)(args, t, c, from, to);
    else
      (stochastic ? update<true, false> : update<false, false>)(args, t, c, from, to);
  });
}

void adamw_kernel(const AdamWArgs& args) {
  update_all(args);
  for (const AdamWTensor& t : args.tensors)
    if (t.amax.defined()) amax_slot(DeviceType::cpu, {t.param, t.amax, Granularity::tensor});
}

QUENCH_CPU_KERNEL(adamw_slot, adamw_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
