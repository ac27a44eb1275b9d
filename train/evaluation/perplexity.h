#pragma once
// Document perplexity per token, word and byte.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "nn/decoder/causal_lm.h"
#include "train/evaluation/scoring.h"

namespace quench {

// Sums over scored documents.
struct PerplexityReport {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;  // predicted
  std::int64_t words = 0;   // count_words of the texts; 0: unknown
  std::int64_t bytes = 0;   // UTF-8 bytes; 0: unknown
  double nll = 0;           // -log p over all tokens, nats

  // NaN if the count is 0.
  [[nodiscard]] double loss() const;              // nll / tokens
  [[nodiscard]] double token_perplexity() const;  // exp(nll / tokens)
  [[nodiscard]] double word_perplexity() const;   // exp(nll / words): tokenizer-independent
  [[nodiscard]] double byte_perplexity() const;   // exp(nll / bytes)
  [[nodiscard]] double bits_per_byte() const;     // nll / bytes / ln 2
};

// Windows over a document.
struct PerplexityOptions {
  std::int64_t window = 0;  // context, tokens
  // 0: rolling windows of lm-evaluation-harness; > 0: strided windows of the Transformers perplexity guide.
  std::int64_t stride = 0;
  // Precedes a document in rolling windows; unset: the first token is not scored.
  std::optional<std::int32_t> prefix;
};

// Document to score.
struct ScoredDocument {
  std::span<const std::int32_t> tokens;
  std::span<const std::uint8_t> targets;  // per token, 0: context only; empty: all scored
  std::optional<std::string_view> text;   // decoded, if known
};

// Scores documents one by one. The model must outlive it.
class PerplexityMeter {
 public:
  PerplexityMeter(const nn::CausalLm& model, const PerplexityOptions& options) : options_(options), scorer_(model) {}

  // WindowScorer::on_pass().
  void on_pass(PassSink sink) { scorer_.on_pass(std::move(sink)); }

  // Throws nonfinite naming document (from 0) and token for a NaN or infinite loss.
  void add(const ScoredDocument& document);
  // Throws bad_config if no token was scored.
  [[nodiscard]] PerplexityReport finish();

 private:
  PerplexityOptions options_;
  WindowScorer scorer_;
  PerplexityReport report_;
  bool text_known_ = true;
};

// As lm-evaluation-harness: pieces of re.split(r"\s+", text).
[[nodiscard]] std::int64_t count_words(std::string_view text);

}  // namespace quench
