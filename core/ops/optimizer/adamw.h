#pragma once
// Multi-tensor AdamW (Loshchilov and Hutter, 2019, arXiv:1711.05101).

#include <span>

#include "core/device/kernel_slot.h"
#include "core/number/random.h"
#include "core/tensor/tensor.h"

namespace quench {

struct AdamWTensor {
  Tensor param;  // f32/bf16, as grad and states
  Tensor grad;
  Tensor exp_avg;
  Tensor exp_avg_sq;  // dtype of exp_avg
  // Of a bf16 param, optional: f32, or i16: the lower halves of split master weights (core/number/split_f32.h), whose
  // upper halves are param.
  Tensor master{};
  double weight_decay = 0.0;
  std::uint64_t random_stream = 0;  // hash64 of the parameter name
  std::int64_t element_offset = 0;  // global index of the shard's start
  Tensor amax{};                    // out, f32 [], optional: of the stored new param
};

struct AdamWArgs {
  std::span<const AdamWTensor> tensors;  // all contiguous
  double lr = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  std::int64_t step = 1;  // 1-based
  // f32 [1] on the device, optional. Non-finite: no update.
  Tensor grad_scale;
  bool stochastic_rounding = false;  // bf16 params without master, bf16 states
  std::uint64_t seed = 0;
};

// In the step's top two bits; they share Philox's key and round keys.
enum class AdamWRounding : std::uint64_t { param, exp_avg, exp_avg_sq };

[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::uint64_t random_step(std::uint64_t step, AdamWRounding what) noexcept {
  return step ^ static_cast<std::uint64_t>(what) << 62;
}

extern constinit KernelSlot<AdamWArgs> adamw_slot;

// f32 arithmetic:
//   p = p (1 - lr wd); m = m + (1-b1)(g-m); v = b2 v + (1-b2) g^2;
//   p = p - lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps).
// f64 scalars, rounded once. The update uses unrounded m and v. Element i: stochastic_round_bf16 with key {seed,
// random_stream, random_step(step, what)} at element_offset + i.
void adamw(const AdamWArgs& args);

}  // namespace quench
