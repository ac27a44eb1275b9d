#pragma once
// MoE token dispatch and combine (permute / unpermute).
//
// Pair t * k + choice of token t has one row. An expert's rows are contiguous, in pair order, start at a multiple of
// `alignment`, padded with 0. Counts stay on the device: buffers have worst-case size.

#include <optional>

#include "core/device/kernel_slot.h"
#include "core/number/e8m0.h"
#include "core/tensor/tensor.h"

namespace quench {

// Multiple of `alignment`, never 0: an EP rank may receive no token.
[[nodiscard]] constexpr std::int64_t permuted_row_capacity(std::int64_t pairs, std::int64_t experts,
                                                           std::int64_t alignment) noexcept {
  if (pairs == 0) return alignment;
  const std::int64_t used = pairs < experts ? pairs : experts;
  return (pairs + used * (alignment - 1)) / alignment * alignment;
}

struct TokenPermutationArgs {
  Tensor experts;  // i32 [N,k], 0..E-1
  std::int64_t alignment = 1;
  Tensor counts;  // out, f32 [E]: pairs
  Tensor ends;    // out, i32 [E]: ends of rows, padding included
  Tensor rows;    // out, i32 [N,k]: row of each pair
  Tensor pairs;   // out, i32 [permuted_row_capacity(N*k, E, alignment)]: pair of each row, or -1
};

// Dispatch: out[r] = x[pairs[r] / k]; 0 in padding rows.
struct PermuteTokensArgs {
  Tensor x;      // [N,H], f32/bf16; contiguous rows
  Tensor pairs;  // i32 [R]
  std::int64_t choices = 1;
  Tensor out;  // [R,H]
};

// Combine: out[n] = sum over j of y[rows[n,j]], f32 in the order of j, one rounding; backward of permute, and vice
// versa.
struct UnpermuteTokensArgs {
  Tensor y;     // [R,H], f32/bf16, contiguous
  Tensor rows;  // i32 [N,k]; -1: no row
  Tensor out;   // [N,H]; contiguous rows
};

// SwiGLU with router weights, before the down projection (its output is not saved for dweights): out[r] =
// weights[pairs[r]] * silu(gate) * up; 0 in padding rows. With score_before_experts: silu(weight * gate) * (weight *
// up).
struct ExpertSwigluArgs {
  Tensor gate_up;  // [R,2I]: gate, up; f32/bf16, contiguous
  Tensor weights;  // f32 [N,k]
  Tensor pairs;    // i32 [R]
  Tensor out;      // [R,I]
  bool score_before_experts = false;
  // Rowwise MX rounding of `out`; I % 32 == 0.
  std::optional<MxScaleMode> round = std::nullopt;
};

struct ExpertSwigluBackwardArgs {
  Tensor dout;  // [R,I]
  Tensor gate_up;
  Tensor weights;
  Tensor pairs;
  Tensor dgate_up;  // out, [R,2I]; may alias gate_up; 0 in padding rows
  Tensor dweights;  // out, f32 [N,k], all written
  Tensor out{};     // optional: recomputed forward output
  bool score_before_experts = false;
};

extern constinit KernelSlot<TokenPermutationArgs> token_permutation_slot;
extern constinit KernelSlot<PermuteTokensArgs> permute_tokens_slot;
extern constinit KernelSlot<UnpermuteTokensArgs> unpermute_tokens_slot;
extern constinit KernelSlot<ExpertSwigluArgs> expert_swiglu_slot;
extern constinit KernelSlot<ExpertSwigluBackwardArgs> expert_swiglu_backward_slot;

// Deterministic.
void token_permutation(const TokenPermutationArgs& args);
void permute_tokens(const PermuteTokensArgs& args);
void unpermute_tokens(const UnpermuteTokensArgs& args);
void expert_swiglu(const ExpertSwigluArgs& args);
void expert_swiglu_backward(const ExpertSwigluBackwardArgs& args);

}  // namespace quench
