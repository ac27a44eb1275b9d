// Tokenizers of text with a mark for spaces: what no stored case covers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/tokenizer/model/byte_tokens.h"
#include "tests/data/tokenizer/bpe_fixtures.h"
#include "tests/testing.h"

namespace quench {
namespace {

using testing::added_token;
using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::Ids;
using testing::load;
using testing::load_error;
using ::testing::StartsWith;

constexpr const char* kMark = "\u2581";

Json metaspace(const char* scheme, bool split) {
  return Json::Object{{"type", "Metaspace"}, {"replacement", kMark}, {"prepend_scheme", scheme}, {"split", split}};
}

Json replace(const char* from, const char* to) {
  return Json::Object{{"type", "Replace"}, {"pattern", Json::Object{{"String", from}}}, {"content", to}};
}

Json of_type(const char* type) {
  return Json::Object{{"type", type}};
}

Json decoder(Json::Array parts) {
  return Json::Object{{"type", "Sequence"}, {"decoders", std::move(parts)}};
}

// Ids 0 <unk>, 1 <s>, 2 to 257 the bytes, then the mark, a, b, the mark and a, ab.
Json text_description() {
  Json vocabulary = Json::Object{{"<unk>", 0}, {"<s>", 1}};
  for (int byte = 0; byte < 256; ++byte) vocabulary.set(byte_token(static_cast<std::uint8_t>(byte)), byte + 2);
  int id = 258;
  for (const char* token : {kMark, "a", "b", "\u2581a", "ab"}) vocabulary.set(token, id++);
  return Json::Object{
      {"version", "1.0"},
      {"added_tokens", Json::Array{added_token(0, "<unk>", {"special"}), added_token(1, "<s>", {"special"})}},
      {"normalizer", nullptr},
      {"pre_tokenizer", metaspace("first", false)},
      {"post_processor", nullptr},
      {"decoder", decoder({replace(kMark, " "), of_type("ByteFallback"), of_type("Fuse"),
                           Json::Object{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}})},
      {"model", Json::Object{{"type", "BPE"},
                             {"unk_token", "<unk>"},
                             {"fuse_unk", true},
                             {"byte_fallback", true},
                             {"vocab", std::move(vocabulary)},
                             {"merges", Json::Array{Json::Array{kMark, "a"}, "a b"}}}}};
}

TEST(TextTokenizer, FallsBackToBytesAndMarksTheTextsBeginning) {
  const auto tokenizer = load(text_description());
  EXPECT_EQ(tokenizer->encode("ab"), (Ids{261, 260}));
  EXPECT_EQ(tokenizer->encode("c a"), (Ids{258, 'c' + 2, 261}));
  EXPECT_EQ(tokenizer->encode("\u00E9"), (Ids{258, 0xC3 + 2, 0xA9 + 2}));
  EXPECT_EQ(tokenizer->encode("<s>a"), (Ids{1, 259}));
  EXPECT_EQ(tokenizer->encode("<s>", {.parse_special = false}), (Ids{258, '<' + 2, 's' + 2, '>' + 2}));
  EXPECT_EQ(tokenizer->decode(Ids{261, 261}), "a a");
  EXPECT_EQ(tokenizer->token_text(261), " a");
  EXPECT_EQ(tokenizer->find_token(" a"), 261);
  EXPECT_EQ(tokenizer->find_token("a"), 259);
  EXPECT_EQ(tokenizer->find_token("c"), 'c' + 2);
  EXPECT_EQ(tokenizer->bos_id(), 1);
}

TEST(TextTokenizer, BytesThatAreNoTextDecodeToThemselves) {
  Json json = text_description();
  json.set("pre_tokenizer", nullptr);
  json.set("normalizer", Json::Object{{"type", "Sequence"},
                                      {"normalizers", Json::Array{Json::Object{{"type", "Prepend"}, {"prepend", kMark}},
                                                                  replace(" ", kMark)}}});
  const auto tokenizer = load(json);
  EXPECT_EQ(tokenizer->encode("\xFF"), Ids{0xFF + 2});
  EXPECT_EQ(tokenizer->encode("a\xFF"
                              "b a"),
            (Ids{261, 0xFF + 2, 260, 261}));
  std::mt19937 random(5);
  const std::string alphabet("a b  <s>\n\xFF\xC3\xA9\xE2\x96", 15);
  for (int i = 0; i < 500; ++i) {
    const std::string text = testing::random_bytes(random, random() % 30, alphabet);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, {.parse_special = false})), text);
  }
}

TEST(TextTokenizer, OtherBytesBecomeReplacementCharactersWhereBytesHaveNoTokens) {
  Json json = text_description();
  json.find("model")->set("byte_fallback", false);
  EXPECT_EQ(load(json)->encode("a\xFF\xFE"), (Ids{261, 0}));
}

TEST(TextTokenizer, AMegabyteWithoutASplitTakesLessThanQuadraticTime) {
  const auto tokenizer = load(text_description());
  std::mt19937 random(9);
  const std::string text = testing::random_bytes(random, std::size_t{1} << 20, "ab ");
  Ids ids;
  EXPECT_LT(testing::cpu_seconds([&] { ids = tokenizer->encode(text); }), 20);
  EXPECT_EQ(tokenizer->decode(ids), text.substr(text.starts_with(' ') ? 1 : 0));
}

TEST(TextTokenizer, RefusesWhatItWouldNotReproduce) {
  const auto with = [](const char* key, Json value) {
    Json json = text_description();
    json.set(key, std::move(value));
    return load_error(json);
  };
  EXPECT_EQ(with("pre_tokenizer", nullptr), "");
  EXPECT_THAT(with("pre_tokenizer", Json::Object{{"type", "Metaspace"}, {"replacement", "ab"}}),
              HasSubstr("the replacement \"ab\" is not one character"));
  EXPECT_THAT(with("pre_tokenizer", metaspace("sometimes", true)), HasSubstr("prepend_scheme sometimes"));
  Json contradiction = metaspace("first", true);
  contradiction.set("add_prefix_space", false);
  EXPECT_THAT(with("pre_tokenizer", contradiction), AllOf(StartsWith("corrupt"), HasSubstr("add_prefix_space false")));
  EXPECT_THAT(with("pre_tokenizer", testing::byte_level(false, false)), HasSubstr("pre_tokenizer: ByteLevel"));
  const Json pattern = Json::Object{{"type", "Replace"}, {"pattern", Json::Object{{"Regex", " +"}}}, {"content", " "}};
  EXPECT_THAT(with("normalizer", pattern), HasSubstr("normalizer: Replace of anything but a fixed string"));
  EXPECT_THAT(with("normalizer", of_type("Precompiled")), HasSubstr("normalizer Precompiled"));
  EXPECT_THAT(with("normalizer", replace("a", std::string(65, 'b').c_str())), HasSubstr("64 times as long"));
  EXPECT_THAT(with("decoder", decoder({of_type("Fuse"), replace(kMark, " ")})), HasSubstr("Replace is only supported"));
  EXPECT_THAT(with("decoder", of_type("WordPiece")), HasSubstr("decoder WordPiece"));
  const Json strip = Json::Object{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 1}};
  EXPECT_THAT(with("decoder", decoder({replace(kMark, " "), of_type("Fuse"), strip})), HasSubstr("Strip of 1 leading"));
}

TEST(TextTokenizer, RefusesBadUnigramVocabularies) {
  const auto with = [](Json vocabulary, Json unk_id) {
    Json json = text_description();
    json.set("added_tokens", Json::array());
    json.set("model",
             Json::Object{{"type", "Unigram"}, {"unk_id", std::move(unk_id)}, {"vocab", std::move(vocabulary)}});
    return load_error(json);
  };
  const Json unk = Json::Array{"<unk>", 0.0};
  EXPECT_EQ(with(Json::Array{unk, Json::Array{"a", -1}}, 0), "");
  EXPECT_THAT(with(Json::Array{unk, Json::Array{"", -1}}, 0), HasSubstr("token 1 has 0 bytes"));
  EXPECT_THAT(with(Json::Array{unk, Json::Array{"a", -1}, Json::Array{"a", -2}}, 0),
              HasSubstr("token 2 \"a\" is listed twice"));
  EXPECT_THAT(with(Json::Array{unk, Json::Array{"a"}}, 0), HasSubstr("1 fields, expected 2"));
  EXPECT_THAT(with(Json::Array{unk}, 1), HasSubstr("unk_id 1 is not in the vocabulary"));
  EXPECT_THAT(with(Json::Array{unk}, nullptr), HasSubstr("without an unk_id"));
  EXPECT_THAT(with(Json::array(), 0), StartsWith("corrupt"));
}

TEST(LoadTokenizer, AFolderWithOnlyALlama2TokenizerJsonLoads) {
  const testing::TempDir folder;
  testing::write_file(folder / "tokenizer.json", text_description().dump());
  const auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->encode("ab"), (Ids{261, 260}));
  // What it was made from travels along and changes nothing.
  testing::write_file(folder / "tokenizer.model", "a model");
  const auto both = load_tokenizer(folder.path());
  EXPECT_EQ(both->fingerprint(), tokenizer->fingerprint());
  both->save(folder / "copy");
  EXPECT_EQ(testing::read_file(folder / "copy/tokenizer.model"), "a model");
}

}  // namespace
}  // namespace quench
