#pragma once
// Perplexity of documents: per token, per word and per byte.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "nn/causal_lm.h"
#include "train/evaluation/scoring.h"

namespace quench {

struct PerplexityReport {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;  // predicted tokens
  std::int64_t words = 0;   // of the documents' texts, as count_words; 0: a document's text is not known
  std::int64_t bytes = 0;   // of UTF-8; the same
  double nll = 0;           // sum of -log p over all tokens, nats

  // NaN where the count is 0.
  [[nodiscard]] double loss() const;              // nll / tokens
  [[nodiscard]] double token_perplexity() const;  // exp(nll / tokens)
  [[nodiscard]] double word_perplexity() const;   // exp(nll / words): independent of the tokenizer
  [[nodiscard]] double byte_perplexity() const;   // exp(nll / bytes)
  [[nodiscard]] double bits_per_byte() const;     // nll / bytes / ln 2
};

struct PerplexityOptions {
  std::int64_t window = 0;  // tokens that the model sees at once
  // 0: rolling windows as lm-evaluation-harness makes them. Above: windows that far apart, as in the guide to
  // perplexity of Transformers' documentation.
  std::int64_t stride = 0;
  // What stands before a document's first token in rolling windows. Without, that token is not scored.
  std::optional<std::int32_t> prefix;
};

// A document as tokens.
struct ScoredDocument {
  std::span<const std::int32_t> tokens;
  std::span<const std::uint8_t> targets;  // one flag a token, 0: context only; or empty: all are scored
  std::optional<std::string_view> text;   // what the tokens stand for, as far as it is known
};

class PerplexityMeter {
 public:
  PerplexityMeter(const nn::CausalLm& model, const PerplexityOptions& options) : options_(options), scorer_(model) {}

  // Throws nonfinite where the model's loss is NaN or infinite, naming document (from 0) and token.
  void add(const ScoredDocument& document);
  // Throws bad_config when no token could be scored.
  [[nodiscard]] PerplexityReport finish();

 private:
  PerplexityOptions options_;
  WindowScorer scorer_;
  PerplexityReport report_;
  bool text_known_ = true;
};

// Words as lm-evaluation-harness counts them: the pieces of re.split(r"\s+", text).
[[nodiscard]] std::int64_t count_words(std::string_view text);

}  // namespace quench
