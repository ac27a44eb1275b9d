#pragma once
// MLA heads (latent_attention.h) in the fused q, k, v layout.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct MlaHeadsShape {
  std::int64_t heads = 0;
  std::int64_t plain = 0;   // columns of q and k without RoPE
  std::int64_t rotary = 0;  // RoPE columns; even
  std::int64_t value = 0;   // <= width()
  // RoPE pairs of q and key are adjacent, else rotary / 2 apart; always so in the output, which keeps q k^T.
  bool interleaved = true;

  [[nodiscard]] std::int64_t width() const noexcept { return plain + rotary; }
};

// Head h: query = q with RoPE; key = plain part of kv, then `key` with RoPE, shared by all heads; value zero-padded. In
// f32, one rounding.
struct MlaHeadsArgs {
  Tensor q;          // [N, heads * (plain + rotary)], f32/bf16, contiguous
  Tensor kv;         // [N, heads * (plain + value)]
  Tensor key;        // [N, rotary]
  Tensor cos, sin;   // f32 [positions, rotary / 2]
  Tensor positions;  // i32 [N]
  Tensor out;        // [N, 3 * heads * width]: q, k, v
  MlaHeadsShape shape;
};

struct MlaHeadsBackwardArgs {
  Tensor dout;
  Tensor cos, sin;
  Tensor positions;
  Tensor dq, dkv, dkey;  // out, like q, kv, key; dkey sums heads in order
  MlaHeadsShape shape;
};

extern constinit KernelSlot<MlaHeadsArgs> mla_heads_slot;
extern constinit KernelSlot<MlaHeadsBackwardArgs> mla_heads_backward_slot;

void mla_heads(const MlaHeadsArgs& args);
void mla_heads_backward(const MlaHeadsBackwardArgs& args);

}  // namespace quench
