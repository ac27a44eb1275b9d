#pragma once
// Multi-tensor AdamW with 8- or 4-bit moments (moment_codes.h). Other fields: AdamWTensor.

#include <span>

#include "core/number/moment_codes.h"
#include "core/ops/optimizer/adamw.h"

namespace quench {

// Moment of a [R, C] param; blocks of moment_block(format) elements of a row.
struct MomentCodes {
  Tensor codes;   // int8: u8 [R, C]; int4: u8 [R, C/2]; fp8: f8_e4m3 [R, C]
  Tensor scales;  // f32 [R, C/block]; 0 means moments of 0
};

struct LowBitAdamWTensor {
  Tensor param;  // [R, C]; C % block == 0
  Tensor grad;
  MomentCodes exp_avg, exp_avg_sq;
  Tensor master;
  double weight_decay = 0.0;
  std::uint64_t random_stream = 0;
  std::int64_t element_offset = 0;
  Tensor amax;
};

struct LowBitAdamWArgs {
  std::span<const LowBitAdamWTensor> tensors;  // all contiguous
  MomentFormat format = MomentFormat::int8;
  AdamWArgs adamw;  // all but tensors; stochastic rounding of params only
};

extern constinit KernelSlot<LowBitAdamWArgs> low_bit_adamw_slot;

// adamw() on dequantized moments, with TorchAO's p = p - (lr wd) p (1 - lr wd loses bits in f32). The update uses
// unquantized moments.
void low_bit_adamw(const LowBitAdamWArgs& args);

}  // namespace quench
