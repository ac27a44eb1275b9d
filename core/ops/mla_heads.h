#pragma once
// MLA heads (nn/attention/latent_attention.h) in the fused q, k, v layout of attention.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct MlaHeadsShape {
  std::int64_t heads = 0;
  std::int64_t plain = 0;   // columns of q and k without RoPE
  std::int64_t rotary = 0;  // columns with RoPE; even
  std::int64_t value = 0;   // value columns, <= width()
  // RoPE pairs in q and key are adjacent; else rotary / 2 apart. Output pairs are always rotary / 2 apart, which leaves
  // q k^T unchanged.
  bool interleaved = true;

  [[nodiscard]] std::int64_t width() const noexcept { return plain + rotary; }
};

// Head h: query = plain and rotated part of q; key = plain part of kv, then the rotated `key` shared by all heads;
// value = that of kv, zero-padded. In f32, one rounding.
struct MlaHeadsArgs {
  Tensor q;          // [N, heads * (plain + rotary)], f32 or bf16, contiguous
  Tensor kv;         // [N, heads * (plain + value)]
  Tensor key;        // [N, rotary]
  Tensor cos, sin;   // f32 [positions, rotary / 2]
  Tensor positions;  // i32 [N], each < positions
  Tensor out;        // [N, 3 * heads * width]: queries, keys, values
  MlaHeadsShape shape;
};

struct MlaHeadsBackwardArgs {
  Tensor dout;           // [N, 3 * heads * width]
  Tensor cos, sin;       // f32 [positions, rotary / 2]
  Tensor positions;      // i32 [N]
  Tensor dq, dkv, dkey;  // out, shapes of q, kv, key; dkey sums heads in order
  MlaHeadsShape shape;
};

extern constinit KernelSlot<MlaHeadsArgs> mla_heads_slot;
extern constinit KernelSlot<MlaHeadsBackwardArgs> mla_heads_backward_slot;

// Throw invalid_argument naming the mismatched tensor.
void mla_heads(const MlaHeadsArgs& args);
void mla_heads_backward(const MlaHeadsBackwardArgs& args);

}  // namespace quench
