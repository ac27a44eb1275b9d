// SentencePiece models, trained here with the library's own trainer.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include "core/system/utf8.h"
#include "data/text/chat_template.h"
#include "data/text/document_encoder.h"
#include "data/tokenizer/stream_decoder.h"
#include "tests/data/tokenizer/bpe_fixtures.h"
#include "tests/testing.h"

namespace quench {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::Ids;
using testing::read_file;
using testing::TempDir;
using testing::write_file;

constexpr std::string_view kMetaSpace = "\u2581";

// A model with Llama 2's conventions: BPE, byte fallback, no normalization, dummy prefix, ids 0 unk, 1 bos, 2 eos.
class SentencePiece : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempDir;
    std::string text;
    for (int i = 0; i < 40; ++i)
      text += "the quick brown fox jumps over the lazy dog\nHello world, hello there\n1234 \u00E9t\u00E9\n";
    write_file(*folder_ / "text", text);
    const auto status = sentencepiece::SentencePieceTrainer::Train(
        "--model_type=bpe --vocab_size=320 --byte_fallback=true --normalization_rule_name=identity "
        "--remove_extra_whitespaces=false --split_digits=true --allow_whitespace_only_pieces=true "
        "--hard_vocab_limit=false --minloglevel=2 --num_threads=1 --input=" +
        (*folder_ / "text").string() + " --model_prefix=" + (*folder_ / "tokenizer").string());
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  static void TearDownTestSuite() { delete folder_; }

  void SetUp() override { ASSERT_TRUE(library_.Load((*folder_ / "tokenizer.model").string()).ok()); }

  // The model in a folder of its own with a tokenizer_config.json.
  static std::unique_ptr<Tokenizer> configured(const std::string& config) {
    const TempDir folder;
    write_file(folder / "tokenizer.model", read_file(*folder_ / "tokenizer.model"));
    write_file(folder / "tokenizer_config.json", config);
    return load_tokenizer(folder.path());
  }
  [[nodiscard]] Ids library_ids(const std::string& text) const {
    const auto ids = library_.EncodeAsIds(text);
    return {ids.begin(), ids.end()};
  }

  inline static TempDir* folder_ = nullptr;
  sentencepiece::SentencePieceProcessor library_;
};

constexpr EncodeOptions kPlain{.add_special_tokens = false};

TEST_F(SentencePiece, IdsAndTextMatchLibrary) {
  const auto tokenizer = load_tokenizer(*folder_ / "tokenizer.model");
  EXPECT_EQ(tokenizer->vocab_size(), library_.GetPieceSize());
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
  EXPECT_EQ(tokenizer->pad_id(), std::nullopt);
  for (const char* text : {"", "Hello world", " Hello", "  two  spaces ", "\n\t x", "1234567",
                           "\u65E5\u672C \U0001F600", "\u2581a", "the lazy fox, \u00E9t\u00E9"}) {
    const Ids ids = tokenizer->encode(text, kPlain);
    EXPECT_EQ(ids, library_ids(text)) << text;
    EXPECT_EQ(tokenizer->decode(ids), library_.DecodeIds({ids.begin(), ids.end()})) << text;
  }
  Ids expected = library_ids("Hello");
  expected.insert(expected.begin(), 1);
  EXPECT_EQ(tokenizer->encode("Hello"), expected);
}

// treat_whitespace_as_suffix: the space that a text gets is at its end.
TEST_F(SentencePiece, SpacesMayEndWords) {
  for (const char* type : {"bpe", "unigram"}) {
    const TempDir folder;
    const auto status = sentencepiece::SentencePieceTrainer::Train(
        fmt::format("--model_type={} --vocab_size=320 --byte_fallback=true --normalization_rule_name=identity "
                    "--remove_extra_whitespaces=false --treat_whitespace_as_suffix=true --hard_vocab_limit=false "
                    "--minloglevel=2 --num_threads=1 --input={} --model_prefix={}",
                    type, (*folder_ / "text").string(), (folder / "tokenizer").string()));
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_TRUE(library_.Load((folder / "tokenizer.model").string()).ok());
    const auto tokenizer = load_tokenizer(folder / "tokenizer.model");
    for (const char* text : {"", " ", "x", "Hello world", " Hello", "two  spaces ", "\n\t x",
                             "the lazy fox, \u00E9t\u00E9", "\u65E5\u672C", "the\xFF quick"}) {
      const Ids ids = tokenizer->encode(text, kPlain);
      if (find_invalid_utf8(text) == std::string::npos) {
        EXPECT_EQ(ids, library_ids(text)) << type << ": " << text;
      }
      EXPECT_EQ(tokenizer->decode(ids), text) << type;
      StreamDecoder stream(*tokenizer);
      std::string streamed;
      for (const auto id : ids) streamed += stream.push(id);
      EXPECT_EQ(streamed + stream.finish(), text) << type;
    }
    Ids ended = library_ids("Hello");
    ended.push_back(2);
    EXPECT_EQ(tokenizer->decode(ended, {.skip_special = true}), "Hello")
        << "the space before a special token that is not shown";
    StreamDecoder stream(*tokenizer, {.skip_special = true});
    std::string streamed;
    for (const auto id : ended) streamed += stream.push(id);
    EXPECT_EQ(streamed + stream.finish(), "Hello");
    // Only the end of the whole text has the space.
    Ids parts{2};
    const Ids rest = library_ids("world");
    parts.insert(parts.end(), rest.begin(), rest.end());
    EXPECT_EQ(tokenizer->encode("</s>world", kPlain), parts);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("Hello</s>world", kPlain)), "Hello</s>world");
  }
}

TEST_F(SentencePiece, EveryByteStringDecodesToItself) {
  const auto tokenizer = load_tokenizer(*folder_ / "tokenizer.model");
  std::mt19937 random(9);
  std::string alphabet = "ab  \n\xC3\xA9\xFF\xE4\xF0\x9F\x98\x80";
  alphabet += '\0';
  for (int i = 0; i < 300; ++i) {
    const std::string text = testing::random_bytes(random, random() % 40, alphabet);
    const Ids ids = tokenizer->encode(text, kPlain);
    EXPECT_EQ(tokenizer->decode(ids), text);
    StreamDecoder stream(*tokenizer);
    std::string streamed;
    for (const auto id : ids) streamed += stream.push(id);
    EXPECT_EQ(streamed + stream.finish(), text);
    std::string shown;
    for (const auto id : ids) shown += stream.push_text(id);
    EXPECT_EQ(shown + stream.finish_text(), replace_invalid_utf8(text)) << "a mark for each byte";
  }
}

TEST_F(SentencePiece, SpecialTokensAreParsedUnlessTheTextIsUntrusted) {
  const auto tokenizer = load_tokenizer(*folder_ / "tokenizer.model");
  Ids expected = library_ids("hello");
  expected.push_back(2);
  const Ids ids = tokenizer->encode("hello</s>", kPlain);
  EXPECT_EQ(ids, expected);
  EXPECT_EQ(tokenizer->decode(ids), "hello</s>");
  EXPECT_EQ(tokenizer->decode(ids, {.skip_special = true}), "hello");
  EXPECT_TRUE(tokenizer->is_special(0));
  EXPECT_TRUE(tokenizer->is_special(2));
  EXPECT_FALSE(tokenizer->is_special(3));
  EXPECT_EQ(tokenizer->encode("hello</s>", {.add_special_tokens = false, .parse_special = false}),
            library_ids("hello</s>"));
}

TEST_F(SentencePiece, OnlyTheTextsBeginningGetsThePrefixUnlessLegacy) {
  const auto space = static_cast<std::int32_t>(library_.PieceToId(std::string(kMetaSpace)));
  const auto x = static_cast<std::int32_t>(library_.PieceToId("x"));
  EXPECT_EQ(configured("{}")->encode("x</s>x</s> x", kPlain), (Ids{space, x, 2, x, 2, space, x}));
  EXPECT_EQ(configured(R"({"legacy": true})")->encode("x</s>x", kPlain), (Ids{space, x, 2, space, x}));
  EXPECT_EQ(configured("{}")->encode("</s>x", kPlain), (Ids{2, x}));
  const auto bare = configured(R"({"add_prefix_space": false})");
  EXPECT_EQ(bare->encode("x", kPlain), Ids{x});
  EXPECT_EQ(bare->decode(Ids{space, x}), " x");
  EXPECT_EQ(configured("{}")->decode(Ids{space, x}), "x");
  EXPECT_EQ(configured("{}")->decode(Ids{1, space, x}), "<s> x");
  EXPECT_EQ(configured("{}")->decode(Ids{1, space, x}, {.skip_special = true}), "x");
}

TEST_F(SentencePiece, SettingsChooseWhatSurroundsATextAndAddTokens) {
  const auto tokenizer = configured(R"({"add_bos_token": false, "add_eos_token": true, "pad_token": "<pad>",
      "added_tokens_decoder": {"0": {"content": "<unk>"}, "320": {"content": "<pad>"}, "321": {"content": "<im>", "rstrip": true}}})");
  ASSERT_EQ(library_.GetPieceSize(), 320);
  EXPECT_EQ(tokenizer->vocab_size(), 322);
  EXPECT_EQ(tokenizer->pad_id(), 320);
  EXPECT_TRUE(tokenizer->is_special(320));
  EXPECT_FALSE(tokenizer->is_special(321));
  EXPECT_EQ(tokenizer->encode("<im>  <pad>"), (Ids{321, 320, 2}));
  EXPECT_EQ(tokenizer->find_token("<im>"), 321);
  EXPECT_EQ(tokenizer->find_token("<|nothing|>"), std::nullopt);
  EXPECT_EQ(tokenizer->token_text(*tokenizer->find_token("\n")), "\n");
  EXPECT_THAT(error_of([] { configured(R"({"added_tokens_decoder": {"3": {"content": "<x>"}}})"); }),
              HasSubstr("has id 3, which is"));
  EXPECT_THAT(error_of([] { configured(R"({"added_tokens_decoder": {"400": {"content": "<x>"}}})"); }),
              HasSubstr("expected 320"));
  EXPECT_THAT(error_of([] { configured(R"({"added_tokens_decoder": {"x": {"content": "<x>"}}})"); }),
              HasSubstr("not a token id"));
}

TEST_F(SentencePiece, ASavedModelIsTheSame) {
  const TempDir folder;
  const auto original = configured(R"({"add_eos_token": true})");
  original->save(folder / "copy");
  const auto copy = load_tokenizer(folder / "copy");
  EXPECT_EQ(copy->fingerprint(), original->fingerprint());
  EXPECT_EQ(copy->encode("hello there"), original->encode("hello there"));
  EXPECT_NE(copy->fingerprint(), load_tokenizer(*folder_ / "tokenizer.model")->fingerprint());
}

TEST_F(SentencePiece, AFolderWithAnUnsupportedTokenizerJsonFallsBackToTheModel) {
  const TempDir folder;
  write_file(folder / "tokenizer.model", read_file(*folder_ / "tokenizer.model"));
  write_file(folder / "tokenizer.json", R"({"decoder": {"type": "WordPiece"}, "model": {"type": "WordPiece"}})");
  const auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->encode("hello", kPlain), library_ids("hello"));
  tokenizer->save(folder / "copy");
  EXPECT_EQ(load_tokenizer(folder / "copy")->fingerprint(), tokenizer->fingerprint());
  EXPECT_TRUE(std::filesystem::exists(folder / "copy/tokenizer.json"));
  // A file that is broken, rather than of another kind, is not passed over.
  write_file(folder / "tokenizer.json", "{");
  EXPECT_THAT(error_of([&] { (void)load_tokenizer(folder.path()); }), HasSubstr("corrupt"));
}

// Meta's own code encodes a question and its answer as one text between begin and end.
TEST_F(SentencePiece, ChatsMatchLlama2) {
  const auto tokenizer = load_tokenizer(*folder_ / "tokenizer.model");
  const ChatTemplate* found = fitting_chat_template(*tokenizer);
  EXPECT_EQ(found, chat_template_from_string("llama2"));
  const std::vector<Document> documents{
      {.pieces = render_chat(found, {{"user", "hello world"}, {"assistant", "the lazy dog"}}), .complete = true}};
  const EncodedDocument encoded = DocumentEncoder(*tokenizer, {}).encode(documents).front();
  Ids expected{1};
  for (const std::int32_t id : library_ids("[INST] hello world [/INST] the lazy dog ")) expected.push_back(id);
  expected.push_back(2);
  EXPECT_EQ(encoded.ids, expected);
  const Ids question = library_ids("[INST] hello world [/INST]");
  EXPECT_EQ(std::count(encoded.targets.begin(), encoded.targets.end(), 0),
            static_cast<std::ptrdiff_t>(1 + question.size()));
}

TEST_F(SentencePiece, LearnsTokens) {
  const auto base = load_tokenizer(*folder_ / "tokenizer.model");
  const auto size = static_cast<std::int32_t>(base->vocab_size());
  const auto tokenizer = base->with_tokens(std::vector<NewToken>{{"<think>"}, {"<tool>", false}});
  EXPECT_EQ(tokenizer->vocab_size(), size + 2);
  EXPECT_EQ(tokenizer->encode("<think><tool>", kPlain), (Ids{size, size + 1}));
  EXPECT_TRUE(tokenizer->is_special(size));
  EXPECT_FALSE(tokenizer->is_special(size + 1));
  const TempDir folder;
  tokenizer->save(folder.path());
  const auto again = load_tokenizer(folder.path());
  EXPECT_EQ(again->fingerprint(), tokenizer->fingerprint());
  EXPECT_EQ(again->eos_id(), base->eos_id());
  EXPECT_EQ(again->encode("the fox<think>"), tokenizer->encode("the fox<think>"));
  EXPECT_THAT(error_of([&] { (void)base->with_tokens(std::vector<NewToken>{{"</s>"}}); }),
              HasSubstr("\"</s>\" is special token 2 of the tokenizer already"));
}

}  // namespace
}  // namespace quench
