#pragma once
// Token sampling from logits.

#include <cstdint>
#include <span>
#include <vector>

#include "core/ops/sampling/sample_tokens.h"

namespace quench {

// Order of Hugging Face: repetition penalty, temperature, top-k, top-p, min-p, softmax, draw.
struct SamplingOptions {
  double temperature = 0.0;         // 0: greedy (lowest index on ties)
  std::int64_t top_k = 0;           // keep the k largest; 0: all
  double top_p = 1.0;               // nucleus: smallest set of most likely tokens with probability >= top_p
  double min_p = 0.0;               // drop tokens below min_p times the top probability
  double repetition_penalty = 1.0;  // for seen tokens: divides positive logits, multiplies negative ones
  std::uint64_t seed = 0;
};

// Throws bad_config naming an out-of-range option.
void check_sampling_options(const SamplingOptions& options);

// The options of the token at `position` of a sequence, prompt included: a draw of (seed, position).
[[nodiscard]] SamplingRow sampling_row(const SamplingOptions& options, std::int64_t position);

// Next token, as sample_tokens() gives it. `seen`: prompt and generated tokens, for the penalty. `allowed`: bits of the
// tokens to draw from; empty: all. Deterministic in (seed, position). Throws as fail_nonfinite_logit for a NaN or
// infinite logit.
[[nodiscard]] std::int32_t sample_token(std::span<const float> logits, std::span<const std::int32_t> seen,
                                        const SamplingOptions& options, std::int64_t position,
                                        std::span<const std::int32_t> allowed = {});

// Throws nonfinite: NaN or infinite logit of `token` after `position` tokens.
[[noreturn]] void fail_nonfinite_logit(std::int64_t token, std::int64_t position);

}  // namespace quench
