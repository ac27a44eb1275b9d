#pragma once
// AdamW whose moments are kept in 8 or 4 bits, for many tensors in one call (core/number/moment_codes.h).

#include <span>

#include "core/number/moment_codes.h"
#include "core/ops/optimizer/adamw.h"

namespace quench {

// A moment of a [R, C] param, in blocks of moment_block(format) elements of a row.
struct MomentCodes {
  Tensor codes;   // int8: u8 [R, C]; int4: u8 [R, C/2]; fp8: f8_e4m3 [R, C]
  Tensor scales;  // f32 [R, C/block]; zeros with any codes are a moment of zeros
};

struct LowBitAdamWTensor {
  Tensor param;  // f32 or bf16 [R, C]; C is a multiple of the block
  Tensor grad;   // f32 or bf16, same shape
  MomentCodes exp_avg, exp_avg_sq;
  Tensor master;  // f32 copy of a bf16 param that is updated and then rounded into it, or undefined
  double weight_decay = 0.0;
  std::uint64_t random_stream = 0;  // as in AdamWTensor
  std::int64_t element_offset = 0;
  Tensor amax;  // f32 [], or undefined; out: largest magnitude of the new param, as it is stored
};

struct LowBitAdamWArgs {
  std::span<const LowBitAdamWTensor> tensors;  // all contiguous
  MomentFormat format = MomentFormat::int8;
  AdamWArgs adamw;  // everything but its tensors; stochastic rounding is that of bf16 params without master
};

extern constinit KernelSlot<LowBitAdamWArgs> low_bit_adamw_slot;

// The update of adamw() with the moments that the codes stand for, and with p = p - (lr wd) p as decay, TorchAO's
// order: 1 - lr wd loses bits in f32. It uses the moments as computed; what is kept is their codes under new scales.
void low_bit_adamw(const LowBitAdamWArgs& args);

}  // namespace quench
