#pragma once
// Log-likelihood of token sequences in windows.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/decoder/causal_lm.h"

namespace quench {

// targets[i] is predicted from inputs[0..i].
struct ScoringWindow {
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;  // same length; kIgnoreLabel: not scored
  std::int64_t first_target = 0;      // document index of targets[0]
};

using WindowSink = std::function<void(ScoringWindow window)>;

// lm-evaluation-harness, one token of context: the first window predicts tokens[0..L) from `prefix`, tokens[0..L-1);
// later ones the next L tokens from the token before each. The last is shifted back to full length, scored tokens being
// context. Every token is scored once.
void rolling_windows(std::span<const std::int32_t> tokens, std::int32_t prefix, std::int64_t window,
                     const WindowSink& sink);

// Transformers perplexity guide: tokens[0..L), tokens[S..S+L), ... up to the first that reaches the end. Each scores
// tokens not seen before, except its first token. 1 <= stride <= window.
void strided_windows(std::span<const std::int32_t> tokens, std::int64_t window, std::int64_t stride,
                     const WindowSink& sink);

// Per window in insertion order: document, sum of -log p over targets in nats.
using ScoreSink = std::function<void(std::int64_t document, double nll)>;

// Packed windows after their forward pass.
struct ScoredPass {
  const nn::CausalLm& model;
  Tensor ids;                                // i32 [N] on the model's device
  Tensor labels;                             // i32 [N] there: targets
  std::span<const std::int32_t> targets;     // kIgnoreLabel: not scored
  std::span<const SequenceRange> sequences;  // windows
  autograd::Variable hidden;                 // [N,H], normalised
};

using PassSink = std::function<void(const ScoredPass& pass)>;

// Windows are packed into forward passes without cross-window attention, each rotated by its own length: a window's
// value does not depend on its neighbours. With a quantized KV cache (CausalLm::kv_cache), a window is a pass through
// it: keys and values are those of decoding.
class WindowScorer {
 public:
  // `unit`: noun for a document in errors. Passes have at most `tokens_per_pass` tokens, or one window.
  explicit WindowScorer(const nn::CausalLm& model, std::string_view unit = "document", ScoreSink sink = {},
                        std::int64_t tokens_per_pass = 4096)
      : model_(model),
        unit_(unit),
        sink_(std::move(sink)),
        tokens_per_pass_(model.kv_cache().format == nullptr ? tokens_per_pass : 0) {}

  // `sink`: after each pass with finite losses.
  void on_pass(PassSink sink) { pass_sink_ = std::move(sink); }

  // `document`: for errors. Throws nonfinite naming document and token for a NaN or infinite loss.
  void add(ScoringWindow window, std::int64_t document);
  // Scores pending windows. Sum of -log p over all targets so far, in nats.
  double finish();
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
  PassSink pass_sink_;
  std::int64_t tokens_per_pass_;
  std::vector<Waiting> waiting_;
  std::int64_t waiting_tokens_ = 0;
  std::int64_t targets_ = 0;
  double nll_ = 0;
  std::optional<nn::KvCache> cache_;
};

}  // namespace quench
