#pragma once
// Log-likelihoods of token sequences under a model.

#include <cstdint>
#include <span>
#include <vector>

#include "nn/causal_lm.h"

namespace quench {

// One window: `targets` are predicted from `inputs` position by position (targets[i] follows inputs[i]).
struct ScoringWindow {
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;  // same length; kIgnoreLabel is not scored
};

// Negative log-likelihood of every window, in nats, summed over its targets. Windows are packed into forward passes of
// at most `tokens_per_pass` tokens and never see each other.
[[nodiscard]] std::vector<double> score_windows(const nn::CausalLm& model, std::span<const ScoringWindow> windows,
                                                std::int64_t tokens_per_pass = 4096);

// Rolling windows over a document as lm-evaluation-harness makes them: the first window predicts tokens[0..L) from
// prefix followed by tokens[0..L-1); each later one predicts the next L tokens with exactly one token of context. Every
// token is predicted once.
[[nodiscard]] std::vector<ScoringWindow> rolling_windows(std::span<const std::int32_t> tokens, std::int32_t prefix,
                                                         std::int64_t window);

}  // namespace quench
