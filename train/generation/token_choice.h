#pragma once
// Choosing the next token from logits.

#include <cstdint>
#include <span>
#include <vector>

namespace quench {

// Applied in Hugging Face's order: repetition penalty, temperature, top-k, top-p, min-p, softmax, draw.
struct SamplingOptions {
  double temperature = 0.0;         // 0: greedy, the largest logit (first index on ties)
  std::int64_t top_k = 0;           // keep the k largest; 0: all
  double top_p = 1.0;               // keep the smallest set of most likely tokens whose probability reaches top_p
  double min_p = 0.0;               // drop tokens less likely than min_p times the most likely
  double repetition_penalty = 1.0;  // positive logits of tokens already seen are divided by it, negative multiplied
  std::uint64_t seed = 0;
};

// Throws bad_config naming the option for values outside their range.
void check_sampling_options(const SamplingOptions& options);

// The next token. `seen` are prompt and generated tokens, for the penalty. The draw depends on (seed, position) only.
// Throws as fail_nonfinite_logit does when a logit is NaN or infinite.
[[nodiscard]] std::int32_t sample_token(std::span<const float> logits, std::span<const std::int32_t> seen,
                                        const SamplingOptions& options, std::int64_t position);

// Throws nonfinite: the logit of `token` behind a text of `position` tokens is NaN or infinite.
[[noreturn]] void fail_nonfinite_logit(std::int64_t token, std::int64_t position);

}  // namespace quench
