#include "data/text/document_encoder.h"

#include "tests/data/sampling/token_fixtures.h"
#include "tests/data/tokenizer/tokenizer_fixtures.h"

namespace quench {
namespace {

using Ids = std::vector<std::int32_t>;
using testing::expect_error;

Document text_document(const std::string& text, bool begins = true, bool ends = true) {
  return {.pieces = {{.text = text}}, .begins = begins, .ends = ends};
}

// As records are read: special tokens in the text are tokens.
Document record(const std::string& text) {
  return {.pieces = {{.text = text, .markup = true}}};
}

TEST(DocumentEncoder, BeginAndEndTokensStandAtTheEndsOfDocuments) {
  const auto tokenizer = load_tokenizer("bytes");
  const Ids framed = tokenizer->encode("a");
  const std::vector<Document> documents{text_document("ab"), text_document("cd", true, false),
                                        text_document("ef", false, false), text_document("", false, true)};
  const auto encoded = DocumentEncoder(*tokenizer, {}).encode(documents);
  const bool has_bos = framed.front() == tokenizer->bos_id();
  Ids first = {'a', 'b', *tokenizer->eos_id()}, second = {'c', 'd'};
  if (has_bos) {
    first.insert(first.begin(), *tokenizer->bos_id());
    second.insert(second.begin(), *tokenizer->bos_id());
  }
  EXPECT_EQ(encoded[0].ids, first);
  EXPECT_EQ(encoded[1].ids, second);
  EXPECT_EQ(encoded[2].ids, (Ids{'e', 'f'}));
  EXPECT_EQ(encoded[3].ids, (Ids{*tokenizer->eos_id()}));
  EXPECT_TRUE(encoded[0].targets.empty());
  const auto bare =
      DocumentEncoder(*tokenizer, {.eos = EosPolicy::none, .add_special_tokens = false}).encode(documents);
  EXPECT_EQ(bare[0].ids, (Ids{'a', 'b'}));
  EXPECT_TRUE(bare[3].ids.empty());
}

TEST(DocumentEncoder, GoldenTokenizerPutsBeginOfTextFirst) {
  const auto tokenizer = load_tokenizer(testing::golden_dir() / "tokenizer");
  const auto encoded =
      DocumentEncoder(*tokenizer, {.eos = EosPolicy::automatic}).encode(std::vector{text_document("Hello")});
  Ids expected = tokenizer->encode("Hello");
  EXPECT_EQ(expected.front(), 0);
  if (tokenizer->eos_id()) expected.push_back(*tokenizer->eos_id());
  EXPECT_EQ(encoded[0].ids, expected);
}

TEST(DocumentEncoder, SpecialTextIsTextUnlessItIsMarkup) {
  const auto tokenizer = load_tokenizer(testing::golden_dir() / "tokenizer");
  const auto count = [&](const Document& document) {
    const auto encoded = DocumentEncoder(*tokenizer, {}).encode(std::vector{document});
    return std::count(encoded[0].ids.begin(), encoded[0].ids.end(), *tokenizer->find_token("<|eot_id|>"));
  };
  EXPECT_EQ(count(text_document("a<|eot_id|>b")), 0);
  EXPECT_EQ(count(record("a<|eot_id|>b")), 1);
}

TEST(DocumentEncoder, WhatATextBeginsAndEndsWithIsNotAddedAgain) {
  const auto tokenizer = load_tokenizer(testing::golden_dir() / "tokenizer");
  const DocumentEncoder encoder(*tokenizer, {});
  const std::int32_t bos = tokenizer->encode("a").front(), eos = *tokenizer->eos_id();
  const std::string begin = tokenizer->token_text(bos), end = tokenizer->token_text(eos);
  const auto ids = [&](const std::string& text) { return encoder.encode(std::vector{record(text)})[0].ids; };
  const auto whole = [&](const std::string& text) { return tokenizer->encode(text, {.add_special_tokens = false}); };
  EXPECT_EQ(ids(begin + "a" + end), whole(begin + "a" + end));
  EXPECT_EQ(ids("a" + end), whole(begin + "a" + end));
  EXPECT_EQ(ids("a" + end + " \n"), whole(begin + "a" + end + " \n")) << "white space after the end";
  EXPECT_EQ(ids("a" + end + "b"), whole(begin + "a" + end + "b" + end));
  EXPECT_EQ(ids(begin + "a"), whole(begin + "a" + end));
}

TEST(DocumentEncoder, CompleteDocumentsAreLeftAlone) {
  const auto tokenizer = load_tokenizer("bytes");
  const std::vector<Document> documents{{.pieces = {{.ids = {1, 2, 3}, .targets = {0, 1, 1}}}, .complete = true}};
  const auto encoded = DocumentEncoder(*tokenizer, {}).encode(documents);
  EXPECT_EQ(encoded[0].ids, (Ids{1, 2, 3}));
  EXPECT_EQ(encoded[0].targets, (std::vector<std::uint8_t>{0, 1, 1}));
}

TEST(DocumentEncoder, AnEosIsNotDoubledAndMustExistWhenDemanded) {
  const auto tokenizer = load_tokenizer(testing::golden_dir() / "tokenizer");
  ASSERT_TRUE(tokenizer->eos_id());
  const std::string eos = tokenizer->token_text(*tokenizer->eos_id());
  const auto encoded = DocumentEncoder(*tokenizer, {}).encode(std::vector{record("a" + eos)});
  EXPECT_EQ(std::count(encoded[0].ids.begin(), encoded[0].ids.end(), *tokenizer->eos_id()), 1);

  // The same tokenizer under another name for its end token.
  std::string file = testing::read_file(testing::golden_dir() / "tokenizer" / "tokenizer.json");
  for (std::size_t at = file.find(eos); at != std::string::npos; at = file.find(eos))
    file.replace(at, eos.size(), "<|x|>");
  testing::TempDir folder;
  testing::write_file(folder / "tokenizer.json", file);
  const auto without = load_tokenizer(folder / "tokenizer.json");
  ASSERT_FALSE(without->eos_id());
  expect_error(ErrorCode::bad_config, {"no end-of-sequence token"},
               [&] { DocumentEncoder(*without, {.eos = EosPolicy::append}); });
  EXPECT_FALSE(DocumentEncoder(*without, {}).eos_id());
}

}  // namespace
}  // namespace quench
