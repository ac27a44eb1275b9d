#pragma once
// Log-likelihoods of token sequences under a model, and the windows in which long ones are scored.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/causal_lm.h"

namespace quench {

// One window: `targets` are predicted from `inputs` position by position (targets[i] follows inputs[i]).
struct ScoringWindow {
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;  // same length; kIgnoreLabel is not scored
  std::int64_t first_target = 0;      // index of targets[0] in its document
};

using WindowSink = std::function<void(ScoringWindow window)>;

// Rolling windows over a document as lm-evaluation-harness makes them, with one token of context: the first predicts
// tokens[0..L) from `prefix` followed by tokens[0..L-1), each later one the next L tokens from the token before each.
// The last one is moved back so that it is full too: its first tokens are context, already scored. Every token is
// scored once.
void rolling_windows(std::span<const std::int32_t> tokens, std::int32_t prefix, std::int64_t window,
                     const WindowSink& sink);

// Windows tokens[0..L), tokens[S..S+L), tokens[2S..2S+L), ... up to the first that reaches the end, as the guide to
// perplexity in Transformers' documentation has them: each scores the tokens that no earlier one has seen, a window's
// first token excepted, which nothing in it predicts. 1 <= stride <= window.
void strided_windows(std::span<const std::int32_t> tokens, std::int64_t window, std::int64_t stride,
                     const WindowSink& sink);

// Told of each window, in the order of their adding: its document and the sum of -log p over its targets, in nats.
using ScoreSink = std::function<void(std::int64_t document, double nll)>;

// Adds up what windows score. They are packed into forward passes and never see each other.
class WindowScorer {
 public:
  // `unit` is what errors call a document. Passes take at most `tokens_per_pass` tokens, or one window.
  explicit WindowScorer(const nn::CausalLm& model, std::string_view unit = "document", ScoreSink sink = {},
                        std::int64_t tokens_per_pass = 4096)
      : model_(model), unit_(unit), sink_(std::move(sink)), tokens_per_pass_(tokens_per_pass) {}

  // `document` names the window's document in errors. Throws nonfinite naming document and token where the model's
  // loss is NaN or infinite.
  void add(ScoringWindow window, std::int64_t document);
  // Scores what waits. Sum of -log p over all targets so far, in nats.
  double finish();
  // Targets so far.
  [[nodiscard]] std::int64_t targets() const noexcept { return targets_; }

 private:
  void score_pass();

  struct Waiting {
    ScoringWindow window;
    std::int64_t document;
  };

  const nn::CausalLm& model_;
  std::string unit_;
  ScoreSink sink_;
  std::int64_t tokens_per_pass_;
  std::vector<Waiting> waiting_;
  std::int64_t waiting_tokens_ = 0;
  std::int64_t targets_ = 0;
  double nll_ = 0;
};

}  // namespace quench
