#pragma once
// Token sampling, one token for each row of logits: repetition penalty, temperature, top-k, top-p, min-p, draw, in
// Transformers' order, among the allowed tokens of a row. All devices give the same tokens, bit for bit
// (core/number/sampling_weight.h); a row's token depends on that row alone.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct SamplingRow {
  float scale = 0;            // log2(e) / temperature; 0: greedy, the lowest index of the largest logit
  float top_p = 1;            // keep the smallest set of most likely tokens with at least this probability
  float min_p = 0;            // drop tokens below this part of the largest probability
  float penalty = 1;          // divides positive logits of seen tokens, multiplies their others
  std::int32_t top_k = 0;     // keep so many; 0: all
  std::int32_t to = 0;        // element of `tokens`, row of `seen` and `allowed`
  std::uint64_t uniform = 0;  // uniform draw, in units of 2^-64
};
static_assert(sizeof(SamplingRow) == 32);

struct SampledRow {
  std::int32_t token;
  std::int32_t first_nonfinite;  // NaN or infinite logit, or -1
  float logit, maximum;          // logit of the token and largest one, without penalty
  std::uint64_t sum;             // sum of sampling_weight() over all tokens, at temperature 1
};
static_assert(sizeof(SampledRow) == 24);
// Natural logarithm of the token's probability.
[[nodiscard]] float logprob_of(const SampledRow& row);

struct SampleTokensArgs {
  Tensor logits;   // f32 [B, V], contiguous
  Tensor rows;     // u8 [B, 32]: SamplingRow
  Tensor tokens;   // out, i32 [S]: element `to` of each row, distinct; others unchanged
  Tensor seen{};   // i32 [S, at least V / 32], optional: bits of seen tokens, in and out; without: no penalty
  Tensor sampled;  // out, u8 [B, 24]: SampledRow
  // i32 [S, at least V / 32], optional: bits of the tokens that may be drawn, at least one a row. SampledRow is about
  // all tokens nevertheless: its probability is the model's.
  Tensor allowed{};
};

extern constinit KernelSlot<SampleTokensArgs> sample_tokens_slot;

void sample_tokens(const SampleTokensArgs& args);

}  // namespace quench
