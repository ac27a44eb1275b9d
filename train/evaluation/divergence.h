#pragma once
// Divergence of a model's next-token distributions from a reference model's, over scored tokens.

#include <cstdint>
#include <vector>

#include "nn/decoder/causal_lm.h"
#include "train/evaluation/scoring.h"

namespace quench {

// KL(reference || model) = sum p (log p - log q) in nats, per scored token; p, q: softmax of f32 logits. Standard
// errors take tokens as independent; NaN for one token.
struct DivergenceReport {
  std::int64_t tokens = 0;
  double mean = 0;
  double mean_error = 0;
  double median = 0;
  double percentile_99 = 0;  // nearest rank
  double largest = 0;
  double same_top = 0;  // share of tokens with one likeliest next token in both (first of equal logits)
  double same_top_error = 0;
};

// Runs the reference on passes of a WindowScorer of another model. Holds a float per scored token, and the logits of
// both models for at most `logits_bytes`. The reference must outlive it; same device and vocabulary as the other model,
// else bad_config.
class DivergenceMeter {
 public:
  explicit DivergenceMeter(const nn::CausalLm& reference, std::int64_t logits_bytes = std::int64_t{256} << 20)
      : reference_(reference), logits_bytes_(logits_bytes) {}

  // Throws nonfinite for NaN or infinite logits of either model.
  void add(const ScoredPass& pass);
  // Throws bad_config if no token was scored.
  [[nodiscard]] DivergenceReport finish() const;

 private:
  const nn::CausalLm& reference_;
  std::int64_t logits_bytes_;
  std::vector<float> divergences_;
  std::int64_t same_ = 0;
};

}  // namespace quench
