#pragma once
// Heads of latent attention (nn/attention/latent_attention.h) as attention reads them: one fused matrix of queries,
// keys and values of equal width.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct MlaHeadsShape {
  std::int64_t heads = 0;
  std::int64_t plain = 0;   // of a head's query and key: as projected
  std::int64_t rotary = 0;  // rotated; even
  std::int64_t value = 0;   // at most width()
  // Pairs that are rotated together stand side by side in q and key; else half of `rotary` apart. In the result they
  // are half of it apart in either case, which changes no product of a query and a key.
  bool interleaved = true;

  [[nodiscard]] std::int64_t width() const noexcept { return plain + rotary; }
};

// Head h of the result: query = plain and rotated part of q; key = plain part of kv and the rotated `key`, which all
// heads share; value = that of kv, then zeros. In f32, one rounding.
struct MlaHeadsArgs {
  Tensor q;          // [N, heads * (plain + rotary)], f32 or bf16, contiguous
  Tensor kv;         // [N, heads * (plain + value)]
  Tensor key;        // [N, rotary]
  Tensor cos, sin;   // f32 [positions, rotary / 2]
  Tensor positions;  // i32 [N], each < positions
  Tensor out;        // [N, 3 * heads * width]: all queries, keys, values
  MlaHeadsShape shape;
};

struct MlaHeadsBackwardArgs {
  Tensor dout;           // [N, 3 * heads * width]
  Tensor cos, sin;       // f32 [positions, rotary / 2]
  Tensor positions;      // i32 [N]
  Tensor dq, dkv, dkey;  // out, of the shapes of q, kv, key; dkey sums over the heads in their order
  MlaHeadsShape shape;
};

extern constinit KernelSlot<MlaHeadsArgs> mla_heads_slot;
extern constinit KernelSlot<MlaHeadsBackwardArgs> mla_heads_backward_slot;

// Throw invalid_argument naming the tensor that does not fit.
void mla_heads(const MlaHeadsArgs& args);
void mla_heads_backward(const MlaHeadsBackwardArgs& args);

}  // namespace quench
