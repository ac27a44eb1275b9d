#pragma once
// Vocabulary of a tokenizer for grammars of answers.

#include "data/tokenizer/tokenizer.h"
#include "engine/grammar/grammar.h"

namespace quench {

// Texts of tokens within a text, for the logits of a model with `size` of them; none of special tokens and of ids
// without a token.
[[nodiscard]] GrammarVocabulary grammar_vocabulary(const Tokenizer& tokenizer, std::int64_t size,
                                                   std::vector<std::int64_t> stop_tokens);

}  // namespace quench
