#include "core/ops/adamw.h"

#include <bit>
#include <cmath>

#include "core/cpu/parallel.h"
#include "core/cpu/simd.h"
#include "core/number/stochastic_rounding.h"
#include "core/ops/quantize.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// Elements per unit of parallel work, and per batch of random numbers.
constexpr std::int64_t kChunk = 16 * 1024;
constexpr std::int64_t kBatch = 512;

// A tensor of f32 or bf16. The branch on the dtype is cheaper than a kernel for each of the combinations.
class Elements {
 public:
  explicit Elements(const Tensor& t) : data_(t.raw_data()), is_bf16_(t.dtype() == DType::bf16) {}
  template <class Count>
  QUENCH_INLINE F32 get(std::int64_t i, Count count) const {
    return is_bf16_ ? load(static_cast<const bfloat16*>(data_) + i, count)
                    : load(static_cast<const float*>(data_) + i, count);
  }
  template <class Count>
  QUENCH_INLINE void set(std::int64_t i, F32 x, Count count) const {
    if (is_bf16_)
      store(static_cast<bfloat16*>(data_) + i, x, count);
    else
      store(static_cast<float*>(data_) + i, x, count);
  }
  // Stochastic rounding (stochastic_round_bf16) with 16 random bits for each lane.
  template <class Count>
  QUENCH_INLINE void set(std::int64_t i, F32 x, Count count, U32 random) const {
    if (!is_bf16_) return set(i, x, count);
    const U32 rounded = (as_u32(x) + random) >> 16;
    store_u16(static_cast<bfloat16*>(data_) + i, narrow_to_u16(select(x == x, rounded, round_to_bfloat16(x))), count);
  }

 private:
  void* data_;
  bool is_bf16_;
};

// Random bits (rounding_bits) of elements [first, first + n) of a stream.
class RandomBits {
 public:
  RandomBits(const AdamWArgs& args, std::uint64_t stream, AdamWRounding what)
      : key_{args.seed, stream, random_step(static_cast<std::uint64_t>(args.step), what)} {}
  void fill(std::uint64_t first, std::int64_t n) {
    // Halves of words in memory are in the order of the elements that they belong to.
    static_assert(std::endian::native == std::endian::little);
    shift_ = static_cast<std::int64_t>(first % kRoundingsPerBlock);
    const std::int64_t blocks = (shift_ + n + kBlock - 1) / kBlock;
    for (std::int64_t b = 0; b < blocks; ++b) {
      const PhiloxBlock block = random_block(key_, first / kRoundingsPerBlock + static_cast<std::uint64_t>(b));
      std::memcpy(bits_ + kBlock * b, block.words, sizeof block.words);
    }
  }
  QUENCH_INLINE U32 get(std::int64_t i) const { return widen_u16(load_u16(bits_ + shift_ + i, FullVector())); }

 private:
  static constexpr auto kBlock = static_cast<std::int64_t>(kRoundingsPerBlock);

  RandomKey key_;
  std::int64_t shift_ = 0;
  std::uint16_t bits_[kBatch + kBlock + kLanes] = {};
};

struct Coefficients {
  float decay, weight1, beta2, weight2, bias2, eps, step_size, grad_scale;
};

Coefficients coefficients(const AdamWArgs& args, double weight_decay, float grad_scale) {
  const auto step = static_cast<double>(args.step);
  return {.decay = static_cast<float>(1 - args.lr * weight_decay),
          .weight1 = static_cast<float>(1 - args.beta1),
          .beta2 = static_cast<float>(args.beta2),
          .weight2 = static_cast<float>(1 - args.beta2),
          .bias2 = static_cast<float>(std::sqrt(1 - std::pow(args.beta2, step))),
          .eps = static_cast<float>(args.eps),
          .step_size = static_cast<float>(-args.lr / (1 - std::pow(args.beta1, step))),
          .grad_scale = grad_scale};
}

template <bool kStochastic>
void update(const AdamWArgs& args, const AdamWTensor& t, const Coefficients& c, std::int64_t begin, std::int64_t end) {
  const Elements param(t.param), grad(t.grad), exp_avg(t.exp_avg), exp_avg_sq(t.exp_avg_sq);
  const bool has_master = t.master.defined();
  const Elements weights(has_master ? t.master : t.param);
  RandomBits param_random(args, t.random_stream, AdamWRounding::param),
      first_random(args, t.random_stream, AdamWRounding::exp_avg),
      second_random(args, t.random_stream, AdamWRounding::exp_avg_sq);
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
      F32 m = exp_avg.get(i, count), v = exp_avg_sq.get(i, count), p = weights.get(i, count) * c.decay;
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
      if (has_master) {
        weights.set(i, p, count);
        param.set(i, p, count);
      }
    });
  }
}

void update_all(const AdamWArgs& args) {
  const float grad_scale = args.grad_scale.defined() ? *args.grad_scale.data<float>() : 1.0f;
  if (!std::isfinite(grad_scale)) return;
  std::int64_t chunks = 0, elements = 0;
  for (const AdamWTensor& t : args.tensors) {
    chunks += (t.param.numel() + kChunk - 1) / kChunk;
    elements += t.param.numel();
  }
  parallel_ranges(chunks, elements, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t first = 0;  // number of this tensor's first chunk
    for (const AdamWTensor& t : args.tensors) {
      const std::int64_t n = t.param.numel(), count = (n + kChunk - 1) / kChunk;
      const std::int64_t from = (std::max(begin, first) - first) * kChunk;
      const std::int64_t to = std::min((std::min(end, first + count) - first) * kChunk, n);
      first += count;
      if (from >= to) continue;
      const Coefficients c = coefficients(args, t.weight_decay, grad_scale);
      const bool rounds = (t.param.dtype() == DType::bf16 && !t.master.defined()) || t.exp_avg.dtype() == DType::bf16 ||
                          t.exp_avg_sq.dtype() == DType::bf16;
      if (args.stochastic_rounding && rounds)
        update<true>(args, t, c, from, to);
      else
        update<false>(args, t, c, from, to);
    }
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
