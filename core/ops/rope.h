#pragma once
// RoPE (Su et al., 2021, arXiv:2104.09864): (x1 cos - x2 sin, x2 cos + x1 sin) in f32, in place.

#include "core/device/kernel_slot.h"
#include "core/ops/quantize/quant_outputs.h"
#include "core/tensor/tensor.h"

namespace quench {

struct RopeArgs {
  Tensor x;    // in/out, [N,heads,D], contiguous last axis; f32/bf16; of wider heads: a view of their first D elements
  Tensor cos;  // f32 [positions,D/2], contiguous
  Tensor sin;
  Tensor positions;          // i32 [N], each < positions
  bool inverse = false;      // backward pass
  bool interleaved = false;  // pairs 2i and 2i+1 (Llama 4), not i and i + D/2 ("NeoX")
};

extern constinit KernelSlot<RopeArgs> rope_slot;

void rope(const RopeArgs& args);

// float8 codes of the result of rope() on a fused matrix of heads, bit for bit, without the result itself.
struct RopeCodesArgs {
  Tensor x;                // [N,W], contiguous; f32/bf16
  std::int64_t heads = 0;  // rotated: the first ones, whole, of D elements each
  Tensor cos;              // f32 [positions,D/2], contiguous
  Tensor sin;
  Tensor positions;  // i32 [N], each < positions
  bool inverse = false;
  QuantOutputs quant_outputs{};  // outputs of all columns; with codes
};

extern constinit KernelSlot<RopeCodesArgs> rope_codes_slot;

// rope() with codes in place of its result.
void rope_codes(const RopeCodesArgs& args);
// As rope_codes(), by rope() of a copy.
void rope_codes_of_copy(const RopeCodesArgs& args);

}  // namespace quench
