#pragma once
// Formats that requests ask answers to keep to (response_format), compiled for the model's vocabulary.

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "engine/grammar/grammar.h"

namespace quench::serve {

// Thread-safe. Texts of the tokens are gathered for the first request that has a format.
class AnswerFormats {
 public:
  // The tokenizer must outlive it. `vocabulary`: number of the model's logits.
  AnswerFormats(const Tokenizer& tokenizer, std::int64_t vocabulary, std::vector<std::int64_t> stop_tokens)
      : tokenizer_(tokenizer), vocabulary_(vocabulary), stop_tokens_(std::move(stop_tokens)) {}

  // Null for none. Throws ApiError 400 naming what is wrong with the format, or that this build has none.
  [[nodiscard]] std::shared_ptr<const Grammar> compile(const std::optional<GrammarSource>& format);

 private:
  const Tokenizer& tokenizer_;
  std::int64_t vocabulary_;
  std::vector<std::int64_t> stop_tokens_;
  std::mutex mutex_;
  std::unique_ptr<GrammarCompiler> compiler_;
};

}  // namespace quench::serve
