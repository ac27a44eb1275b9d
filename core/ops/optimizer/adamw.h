#pragma once
// Multi-tensor AdamW (Loshchilov and Hutter, 2019, arXiv:1711.05101).

#include <span>

#include "core/device/kernel_slot.h"
#include "core/number/random.h"
#include "core/tensor/tensor.h"

namespace quench {

struct AdamWTensor {
  Tensor param;       // f32 or bf16
  Tensor grad;        // f32 or bf16, same shape
  Tensor exp_avg;     // f32 or bf16
  Tensor exp_avg_sq;  // dtype of exp_avg
  Tensor master;      // f32 master weights of a bf16 param, or undefined
  double weight_decay = 0.0;
  std::uint64_t random_stream = 0;  // hash64 of the parameter's name
  std::int64_t element_offset = 0;  // global index of the shard's first element
  Tensor amax;                      // out, f32 [], or undefined: amax of the new param as stored
};

struct AdamWArgs {
  std::span<const AdamWTensor> tensors;  // all contiguous
  double lr = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  std::int64_t step = 1;  // 1-based, for bias correction
  // f32 [1] on the device, or undefined: gradient factor (clipping). Non-finite: no update.
  Tensor grad_scale;
  bool stochastic_rounding = false;  // of bf16 params without master, and bf16 states
  std::uint64_t seed = 0;
};

// Random streams of stochastic rounding, in the step's top two bits (unused by real steps). They share Philox's key,
// and so its round keys.
enum class AdamWRounding : std::uint64_t { param, exp_avg, exp_avg_sq };

[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::uint64_t random_step(std::uint64_t step, AdamWRounding what) noexcept {
  return step ^ static_cast<std::uint64_t>(what) << 62;
}

extern constinit KernelSlot<AdamWArgs> adamw_slot;

// Per element in f32:
//   p = p (1 - lr wd); m = m + (1-b1)(g-m); v = b2 v + (1-b2) g^2;
//   p = p - lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps).
// Scalars in f64, rounded once. The update uses m and v before rounding to their dtype. Stochastic rounding of element
// i: stochastic_round_bf16 with key {seed, random_stream, random_step(step, what)} at element_offset + i.
void adamw(const AdamWArgs& args);

}  // namespace quench
