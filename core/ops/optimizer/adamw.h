#pragma once
// AdamW (Loshchilov and Hutter, 2019, arXiv:1711.05101) for many tensors in one call.

#include <span>

#include "core/device/kernel_slot.h"
#include "core/number/random.h"
#include "core/tensor/tensor.h"

namespace quench {

struct AdamWTensor {
  Tensor param;       // f32 or bf16; the working weights
  Tensor grad;        // f32 or bf16, same shape
  Tensor exp_avg;     // f32 or bf16
  Tensor exp_avg_sq;  // dtype of exp_avg
  Tensor master;      // f32 copy of a bf16 param that is updated and then rounded into it, or undefined
  double weight_decay = 0.0;
  std::uint64_t random_stream = 0;  // hash64 of the parameter's name, for stochastic rounding
  std::int64_t element_offset = 0;  // global index of the first element of this shard
  Tensor amax;                      // f32 [], or undefined; out: largest magnitude of the new param, as it is stored
};

struct AdamWArgs {
  std::span<const AdamWTensor> tensors;  // all contiguous
  double lr = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  std::int64_t step = 1;  // 1-based, for bias correction
  // f32 [1] on the device, or undefined: factor of the gradients (clipping). A non-finite factor leaves all as it is.
  Tensor grad_scale;
  bool stochastic_rounding = false;  // for bf16 params without master, and for bf16 states
  std::uint64_t seed = 0;
};

// Which number of an element is rounded stochastically. The step's top two bits, which a real step count never uses,
// separate the three streams. All three share the key of Philox and so its schedule of round keys.
enum class AdamWRounding : std::uint64_t { param, exp_avg, exp_avg_sq };

[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::uint64_t random_step(std::uint64_t step, AdamWRounding what) noexcept {
  return step ^ static_cast<std::uint64_t>(what) << 62;
}

extern constinit KernelSlot<AdamWArgs> adamw_slot;

// Per element in f32: p = p (1 - lr wd); m = m + (1-b1)(g-m); v = b2 v + (1-b2) g^2;
// p = p - lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps). The scalars are computed in f64 and rounded once. The update
// uses m and v as computed, before they are rounded to the dtype they are kept in. Stochastic rounding of element i
// is stochastic_round_bf16 with key {seed, random_stream, random_step(step, what)} at element_offset + i.
void adamw(const AdamWArgs& args);

}  // namespace quench
