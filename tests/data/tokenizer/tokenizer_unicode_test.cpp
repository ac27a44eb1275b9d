// UTF-8 stretches, the byte alphabet, NFC, and the split patterns.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <set>

#include "data/tokenizer/model/byte_alphabet.h"
#include "data/tokenizer/text/code_points.h"
#include "data/tokenizer/text/split_pattern.h"
#include "data/tokenizer/text/unicode.h"
#include "tests/data/tokenizer/bpe_fixtures.h"

namespace quench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class Visit>
void for_each_scalar_value(const Visit& visit) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c < 0xD800 || c > 0xDFFF) visit(c);
  }
}

std::string utf8(char32_t c) {
  std::string text;
  append_code_point(text, c);
  return text;
}

std::string nfc(std::string_view text) {
  std::string storage;
  return std::string(normalize_nfc(text, storage));
}

TEST(CodePoints, EveryScalarValueSurvivesEncodingAndDecoding) {
  for_each_scalar_value([](char32_t c) {
    const std::string text = utf8(c);
    ASSERT_EQ(utf8_sequence_length(text, 0), text.size());
    ASSERT_EQ(code_point_length(text, 0), text.size());
    ASSERT_EQ(decode_code_point(text, 0), c);
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_EQ(incomplete_utf8_suffix("a" + text.substr(0, cut)), cut);
    }
    ASSERT_EQ(incomplete_utf8_suffix(text), 0u);
  });
}

TEST(CodePoints, WhatCannotBecomeACharacterIsNotHeldBack) {
  for (const char* text : {"", "a", "\x80", "\xC0", "\xC1", "\xED\xA0", "\xE0\x80", "\xF0\x80", "\xF4\x90", "\xF5",
                           "\xFF", "\xC3\xA9\xA9", "\xF0\x9F\x98\x80\x80"}) {
    EXPECT_EQ(incomplete_utf8_suffix(text), 0u) << text;
  }
  EXPECT_EQ(incomplete_utf8_suffix("\xE4\xB8\xE4"), 1u);
  EXPECT_EQ(incomplete_utf8_suffix("\xF0\x9F\x98"), 3u);
}

TEST(CodePoints, StretchesCoverTheBytes) {
  std::vector<std::string> seen;
  for_each_stretch(
      "ab\xFF\xC0\u00E9\xE4\xB8", [&](std::string_view text) { seen.push_back("text " + std::string(text)); },
      [&](std::string_view other) { seen.push_back("other " + std::string(other)); });
  EXPECT_THAT(seen, ElementsAre("text ab", "other \xFF\xC0", "text \u00E9", "other \xE4\xB8"));
}

TEST(ByteAlphabet, EveryByteHasACharacterOfItsOwn) {
  std::set<char32_t> characters;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    characters.insert(byte_to_character(static_cast<std::uint8_t>(byte)));
    EXPECT_EQ(from_byte_alphabet(to_byte_alphabet(bytes)), bytes);
  }
  EXPECT_EQ(characters.size(), 256u);
  EXPECT_EQ(to_byte_alphabet(" a\n\u00E9"), "\u0120a\u010A\u00C3\u00A9");
  EXPECT_EQ(to_byte_alphabet(std::string("\0\x7F\xAD\xFF", 4)), "\u0100\u0121\u0143\u00FF");
  EXPECT_EQ(from_byte_alphabet("a b"), std::nullopt);
  EXPECT_EQ(from_byte_alphabet("\u2581"), std::nullopt);
  EXPECT_EQ(from_byte_alphabet("\u0144"), std::nullopt);
}

TEST(Nfc, ComposesAndOrders) {
  EXPECT_EQ(nfc("e\u0301"), "\u00E9");
  EXPECT_EQ(nfc("\u212B"), "\u00C5");
  EXPECT_EQ(nfc("\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(nfc("\uAC00\u11A8"), "\uAC01");
  EXPECT_EQ(nfc("s\u0307\u0323"), "\u1E69");
  EXPECT_EQ(nfc("s\u0323\u0307"), "\u1E69");
  EXPECT_EQ(nfc("a\u0315\u0300\u05AE\u0300b"), "\u00E0\u05AE\u0300\u0315b");
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093C");  // excluded from composition
  EXPECT_EQ(nfc("\uFB01 \u00BD"), "\uFB01 \u00BD");
  EXPECT_EQ(nfc(""), "");
}

TEST(Nfc, TextThatIsNormalIsReturnedItself) {
  for (const std::string_view text :
       {"plain", "\u00E9\u00F1 \u0416", "\u65E5\u672C\u8A9E\u3067\u3059", "\uD55C\uAE00"}) {
    std::string storage;
    EXPECT_EQ(normalize_nfc(text, storage).data(), text.data());
  }
}

// Every character, alone and where it could compose with what stands before or after it, against utf8proc's own NFC.
TEST(Nfc, AgreesWithUtf8procOnEveryCharacter) {
  const auto reference = [](const std::string& text) {
    utf8proc_uint8_t* result = nullptr;
    const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), std::ssize(text), &result,
                                     static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    std::string normal(reinterpret_cast<const char*>(result), static_cast<std::size_t>(length));
    std::free(result);
    return normal;
  };
  for (char32_t first = 0; first < 0x30000; first += 64) {  // nothing composes or decomposes beyond
    if (first == 0x20000) first = 0x2F800;                  // nor among the ideographs
    std::string text;
    for (char32_t c = first; c < first + 64; ++c) {
      if (c >= 0xD800 && c <= 0xDFFF) continue;
      text += utf8(c) + utf8(c) + "\u0301\u0323" + utf8(c) + "\u11A8a" + utf8(c) + ";";
    }
    ASSERT_EQ(nfc(text), reference(text)) << static_cast<unsigned>(first);
  }
}

std::vector<std::string> pieces(const char* pattern, std::string_view text) {
  std::vector<std::string> result;
  SplitPattern::named(pattern).split(text, [&](std::string_view piece) { result.emplace_back(piece); });
  return result;
}

TEST(SplitPattern, PublishedPatternsSplitAsPublished) {
  EXPECT_THAT(pieces("gpt2", "I'll  say 1234!!\n x"), ElementsAre("I", "'ll", " ", " say", " 1234", "!!", "\n", " x"));
  EXPECT_THAT(pieces("llama3", "I'LL  say 1234!!\n\n x\t\ty"),
              ElementsAre("I", "'LL", " ", " say", " ", "123", "4", "!!\n\n", " x", "\t", "\ty"));
  EXPECT_THAT(pieces("cl100k", "don't12345 "), ElementsAre("don", "'t", "123", "45", " "));
  EXPECT_THAT(pieces("qwen2", "a12"), ElementsAre("a", "1", "2"));
  EXPECT_THAT(pieces("qwen3.5", "\u0915\u093F\u0924"), ElementsAre("\u0915\u093F\u0924"));
  EXPECT_THAT(pieces("qwen2", "\u0915\u093F\u0924"), ElementsAre("\u0915", "\u093F\u0924"));
  EXPECT_THAT(pieces("o200k", "camelCase HTTPServer it's a//\n"),
              ElementsAre("camel", "Case", " HTTPServer", " it's", " a", "//\n"));
  EXPECT_THAT(pieces("tekken", "it's 12"), ElementsAre("it", "'s", " ", "1", "2"));
  EXPECT_THAT(pieces("digit_groups", "ab1234c"), ElementsAre("ab", "123", "4", "c"));
  EXPECT_THAT(pieces("han_kana", "a\u65E5\u672Cb"), ElementsAre("a", "\u65E5\u672C", "b"));
  EXPECT_THAT(pieces("digits", "a12b\u00BD"), ElementsAre("a", "12", "b", "\u00BD"));
  EXPECT_THAT(pieces("individual_digits", "12"), ElementsAre("1", "2"));
}

TEST(SplitPattern, ClassesFollowRecentUnicode) {
  EXPECT_THAT(pieces("llama3", "\U00031350\U00010D4Aa"), ElementsAre("\U00031350\U00010D4Aa"));  // letters since 15, 16
  EXPECT_THAT(pieces("llama3", "\U00010D40\U00010D41"), ElementsAre("\U00010D40\U00010D41"));    // digits since 16
  EXPECT_THAT(pieces("gpt2", "a\u180E \u0085b"), ElementsAre("a", "\u180E", " ", "\u0085", "b"));  // U+180E is no space
}

TEST(SplitPattern, PiecesAreTheTextAndNoneIsEmpty) {
  std::mt19937 random(2);
  for (const std::string& name : SplitPattern::names()) {
    const SplitPattern& pattern = SplitPattern::named(name);
    EXPECT_EQ(SplitPattern::find(pattern.expression()), &pattern);
    for (int i = 0; i < 200; ++i) {
      std::string text;
      for (int k = 0; k < 30; ++k) {
        constexpr char32_t kLimits[] = {0x80, 0x80, 0x80, 0x300, 0x3100, 0xD800, 0x110000};
        const auto c = static_cast<char32_t>(random() % kLimits[random() % 7]);
        append_code_point(text, c >= 0xD800 && c < 0xE000 ? U' ' : c);
      }
      std::string joined;
      pattern.split(text, [&](std::string_view piece) {
        EXPECT_FALSE(piece.empty());
        joined += piece;
      });
      ASSERT_EQ(joined, text) << name;
    }
  }
}

TEST(SplitPattern, UnknownOnesAreNotFound) {
  EXPECT_EQ(SplitPattern::find("(a+)+$"), nullptr);
  EXPECT_EQ(SplitPattern::find(""), nullptr);
  EXPECT_THAT(testing::error_of([] { SplitPattern::named("llama9"); }), HasSubstr("there are gpt2, llama3"));
}

}  // namespace
}  // namespace quench
