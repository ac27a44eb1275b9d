#pragma once
// Tokens sorted by expert: the rows that the products of a mixture of experts work on.
//
// A token with k experts makes k pairs (token, choice), numbered token * k + choice. Each pair gets a row of its own;
// the rows of one expert lie together, in the order of the pairs, and begin at a multiple of an alignment. Rows without
// a pair hold zeros. How many rows an expert has is known to the device alone: buffers have as many rows as the worst
// case needs.

#include <optional>

#include "core/device/kernel_slot.h"
#include "core/number/e8m0.h"
#include "core/tensor/tensor.h"

namespace quench {

// Rows that suffice for any distribution, a multiple of `alignment`; never none, so that the products behind them have
// rows even where no token came (experts on several processes).
[[nodiscard]] constexpr std::int64_t permuted_row_capacity(std::int64_t pairs, std::int64_t experts,
                                                           std::int64_t alignment) noexcept {
  if (pairs == 0) return alignment;
  // An expert without a pair needs no padding.
  const std::int64_t used = pairs < experts ? pairs : experts;
  return (pairs + used * (alignment - 1)) / alignment * alignment;
}

struct TokenPermutationArgs {
  Tensor experts;  // i32 [N,k], each in 0..E-1
  std::int64_t alignment = 1;
  Tensor counts;  // out, f32 [E]: pairs of each expert
  Tensor ends;    // out, i32 [E]: where the rows of each expert end, padding included; multiples of `alignment`
  Tensor rows;    // out, i32 [N,k]: the row of each pair
  Tensor pairs;   // out, i32 [permuted_row_capacity(N*k, E, alignment)]: the pair of each row; -1: none
};

// out[r] = x[pairs[r] / k]; zeros in rows without a pair.
struct PermuteTokensArgs {
  Tensor x;      // [N,H], f32 or bf16, contiguous
  Tensor pairs;  // i32 [R]
  std::int64_t choices = 1;
  Tensor out;  // [R,H]
};

// out[n] = sum over the choices j of y[rows[n,j]], in the order of j in f32, one rounding. Its derivative is
// permute_tokens, and this is the derivative of that.
struct UnpermuteTokensArgs {
  Tensor y;     // [R,H], f32 or bf16, contiguous
  Tensor rows;  // i32 [N,k]
  Tensor out;   // [N,H]
};

// SwiGLU of each row, times the weight of its pair: out[r] = weights[pairs[r]] * silu(gate) * up; zeros in rows without
// a pair. The weight stands here because the product behind it is linear: its result need not be kept for the weight's
// derivative. With `score_before_experts` it multiplies gate and up, which is the same as the input of the product in
// front: out[r] = silu(weight * gate) * (weight * up).
struct ExpertSwigluArgs {
  Tensor gate_up;  // [R,2I]: columns 0..I-1 gate, I..2I-1 up; f32 or bf16, contiguous
  Tensor weights;  // f32 [N,k]
  Tensor pairs;    // i32 [R]
  Tensor out;      // [R,I]
  bool score_before_experts = false;
  // If set, `out` is rounded to MX along its columns (core/ops/quantize/round_mx.h); 32 divides I then.
  std::optional<MxScaleMode> round = std::nullopt;
};

struct ExpertSwigluBackwardArgs {
  Tensor dout;      // [R,I]
  Tensor gate_up;   // [R,2I]
  Tensor weights;   // f32 [N,k]
  Tensor pairs;     // i32 [R]
  Tensor dgate_up;  // out, [R,2I]; may alias gate_up; zeros in rows without a pair
  Tensor dweights;  // out, f32 [N,k], every element written
  Tensor out;       // out, [R,I], or undefined: the forward result once more
  bool score_before_experts = false;
};

extern constinit KernelSlot<TokenPermutationArgs> token_permutation_slot;
extern constinit KernelSlot<PermuteTokensArgs> permute_tokens_slot;
extern constinit KernelSlot<UnpermuteTokensArgs> unpermute_tokens_slot;
extern constinit KernelSlot<ExpertSwigluArgs> expert_swiglu_slot;
extern constinit KernelSlot<ExpertSwigluBackwardArgs> expert_swiglu_backward_slot;

// Deterministic: equal input gives equal bits. Throw invalid_argument naming the tensor that does not fit.
void token_permutation(const TokenPermutationArgs& args);
void permute_tokens(const PermuteTokensArgs& args);
void unpermute_tokens(const UnpermuteTokensArgs& args);
void expert_swiglu(const ExpertSwigluArgs& args);
void expert_swiglu_backward(const ExpertSwigluBackwardArgs& args);

}  // namespace quench
