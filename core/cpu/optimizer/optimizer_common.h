#pragma once
// Compiled per instruction set: for kernel files of core/cpu only.

#include <bit>
#include <cmath>
#include <cstring>

#include "core/cpu/parallel.h"
#include "core/cpu/simd.h"
#include "core/number/stochastic_rounding.h"
#include "core/ops/optimizer/adamw.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// Per work item, and per random batch.
constexpr std::int64_t kChunk = 16 * 1024;
constexpr std::int64_t kBatch = 512;

// A branch on the dtype is cheaper than a kernel per combination.
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
  // Stochastic, 16 random bits per lane.
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

// Elements [first, first + n).
class RandomBits {
 public:
  RandomBits(std::uint64_t seed, std::uint64_t stream, std::int64_t step, AdamWRounding what)
      : key_{seed, stream, random_step(static_cast<std::uint64_t>(step), what)} {}
  void fill(std::uint64_t first, std::int64_t n) {
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

inline Coefficients coefficients(const AdamWArgs& args, double weight_decay, float grad_scale) {
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

// Parallel over chunks.
template <class List, class Body>
void for_chunks(const List& tensors, const Body& body) {
  std::int64_t chunks = 0, elements = 0;
  for (const auto& t : tensors) {
    chunks += (t.param.numel() + kChunk - 1) / kChunk;
    elements += t.param.numel();
  }
  parallel_ranges(chunks, elements, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t first = 0;  // index of the first chunk
    for (const auto& t : tensors) {
      const std::int64_t n = t.param.numel(), count = (n + kChunk - 1) / kChunk;
      const std::int64_t from = (std::max(begin, first) - first) * kChunk;
      const std::int64_t to = std::min((std::min(end, first + count) - first) * kChunk, n);
      first += count;
      if (from < to) body(t, from, to);
    }
  });
}

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
