#pragma once
// Perplexity of texts: per token, per word and per byte.

#include <cstdint>
#include <span>
#include <string>

#include "data/tokenizer/tokenizer.h"
#include "nn/causal_lm.h"

namespace quench {

struct PerplexityReport {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;  // predicted tokens
  std::int64_t words = 0;   // runs of non-space characters plus what splitting on white space adds at the ends
  std::int64_t bytes = 0;   // of UTF-8
  double nll = 0;           // sum of -log p over all tokens, nats

  [[nodiscard]] double loss() const;              // nll / tokens
  [[nodiscard]] double token_perplexity() const;  // exp(nll / tokens)
  [[nodiscard]] double word_perplexity() const;   // exp(nll / words): independent of the tokenizer
  [[nodiscard]] double byte_perplexity() const;   // exp(nll / bytes)
  [[nodiscard]] double bits_per_byte() const;     // nll / bytes / ln 2
};

// Words as lm-evaluation-harness counts them: the pieces of re.split(r"\s+", text).
[[nodiscard]] std::int64_t count_words(std::string_view text);

// Each document is scored in rolling windows of `window` tokens behind the tokenizer's beginning-of-sequence token
// (else its end-of-sequence token; else its first token is not scored).
[[nodiscard]] PerplexityReport perplexity(const nn::CausalLm& model, const Tokenizer& tokenizer,
                                          std::span<const std::string> documents, std::int64_t window);

}  // namespace quench
