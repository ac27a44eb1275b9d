#pragma once
// Vocabulary and texts for the tests of grammars, on the tiny model of the engine's tests.

#include "engine/grammar/grammar.h"
#include "tests/engine/engine_testing.h"

namespace quench::testing {

// Tokens of the tiny model: 0 ends a text, 1 is a control token, the rest are characters of JSON and words.
inline GrammarVocabulary tiny_vocabulary() {
  GrammarVocabulary vocabulary{.texts = std::vector<std::string>(60), .stop_tokens = {0}};
  std::size_t token = 2;
  for (const char c : std::string_view("{}[]\":, \n\\-+.0123456789abcdefnrlstuE")) vocabulary.texts[token++] = c;
  for (const char* word :
       {"true", "false", "null", "\": ", "\", \"", "lane", "rate", "turn", "{\"", "],", "10", "\xc3", "\xa4"})
    vocabulary.texts[token++] = word;
  EXPECT_LE(token, vocabulary.texts.size());
  return vocabulary;
}

inline std::string text_of(const GrammarVocabulary& vocabulary, std::span<const std::int32_t> tokens) {
  std::string text;
  for (const std::int32_t token : tokens)
    if (std::ranges::find(vocabulary.stop_tokens, token) == vocabulary.stop_tokens.end())
      text += vocabulary.texts[static_cast<std::size_t>(token)];
  return text;
}

inline std::vector<std::int32_t> tokens_of(std::span<const std::int32_t> words, std::int64_t count) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i)
    if ((static_cast<std::uint32_t>(words[static_cast<std::size_t>(i / 32)]) >> i % 32 & 1u) != 0)
      tokens.push_back(static_cast<std::int32_t>(i));
  return tokens;
}

inline bool without_library() {
  return open_grammar_library == nullptr;
}

}  // namespace quench::testing
