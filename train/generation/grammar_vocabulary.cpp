#include "train/generation/grammar_vocabulary.h"

#include <algorithm>

#include "core/system/check.h"

namespace quench {

GrammarVocabulary grammar_vocabulary(const Tokenizer& tokenizer, std::int64_t size,
                                     std::vector<std::int64_t> stop_tokens) {
  GrammarVocabulary vocabulary{.texts = std::vector<std::string>(static_cast<std::size_t>(size)),
                               .stop_tokens = std::move(stop_tokens)};
  const std::int64_t known = std::min(size, tokenizer.vocab_size());
  for (std::int64_t id = 0; id < known; ++id) {
    const auto token = static_cast<std::int32_t>(id);
    if (tokenizer.is_special(token)) continue;
    try {
      vocabulary.texts[static_cast<std::size_t>(id)] = tokenizer.token_text(token);
    } catch (const Error&) {  // an id without a token
    }
  }
  return vocabulary;
}

}  // namespace quench
