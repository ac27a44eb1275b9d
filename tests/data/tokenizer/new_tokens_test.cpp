// Tokens that a tokenizer learns: ids, matching, files, mistakes. Transformers writes the same tokenizer.json.

#include <gmock/gmock.h>

#include "tests/data/tokenizer/bpe_fixtures.h"
#include "tests/testing.h"

namespace quench {
namespace {

using testing::added_token;
using testing::description;
using testing::error_of;
using ::testing::HasSubstr;
using testing::Ids;
using testing::load;
using testing::TempDir;
using testing::write_file;

constexpr EncodeOptions kPlain{.add_special_tokens = false};

std::unique_ptr<Tokenizer> learned(const Tokenizer& tokenizer, const std::vector<NewToken>& tokens) {
  return tokenizer.with_tokens(tokens);
}

TEST(NewTokens, FollowTheVocabularyAndAreMatchedFirst) {
  const auto base = load_tokenizer("bytes");
  const auto tokenizer = learned(*base, {{"<think>"}, {"</think>"}, {"<tool>", false}});
  EXPECT_EQ(tokenizer->vocab_size(), 262);
  EXPECT_EQ(tokenizer->encode("a<think>b<tool></think>"), (Ids{256, 'a', 259, 'b', 261, 260}));
  EXPECT_TRUE(tokenizer->is_special(259));
  EXPECT_FALSE(tokenizer->is_special(261));
  EXPECT_EQ(tokenizer->decode(Ids{'a', 259, 261}), "a<think><tool>");
  EXPECT_EQ(tokenizer->decode(Ids{'a', 259, 261}, {.skip_special = true}), "a<tool>");
  EXPECT_EQ(tokenizer->encode("<think>", {.add_special_tokens = false, .parse_special = false}).size(), 7u);
  EXPECT_EQ(tokenizer->bos_id(), 256);
  EXPECT_EQ(tokenizer->eos_id(), 257);
  EXPECT_EQ(base->vocab_size(), 259) << "the other stays";
  EXPECT_NE(base->fingerprint(), tokenizer->fingerprint());
}

TEST(NewTokens, AreSavedAsTransformersSavesThem) {
  const TempDir folder;
  const auto tokenizer = learned(*load_tokenizer("bytes"), {{"<think>"}, {"<tool>", false}});
  tokenizer->save(folder.path());
  const auto again = load_tokenizer(folder.path());
  EXPECT_EQ(again->fingerprint(), tokenizer->fingerprint());
  EXPECT_EQ(again->encode("x<think><tool>"), (Ids{256, 'x', 259, 260}));
  const Json config = Json::parse_file(folder / "tokenizer_config.json");
  EXPECT_EQ(config.at("additional_special_tokens").dump(), R"(["<think>"])");
  EXPECT_EQ(
      config.at("added_tokens_decoder").at("260").dump(),
      R"({"content":"<tool>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":false})");
  EXPECT_EQ(Json::parse_file(folder / "tokenizer.json").at("added_tokens").as_array().back().dump(),
            added_token(260, "<tool>").dump());
  // Once more, over those files.
  const auto more = learned(*again, {{"<end>"}});
  EXPECT_EQ(more->find_token("<end>"), 261);
  EXPECT_EQ(more->find_token("<think>"), 259);
}

TEST(NewTokens, KeepTheFormOfTheSettings) {
  const TempDir folder;
  load_tokenizer("bytes")->save(folder.path());
  write_file(folder / "tokenizer_config.json",
             R"({"eos_token": "<|end_of_text|>", "extra_special_tokens": ["<|pad|>"]})");
  write_file(folder / "special_tokens_map.json", R"({"eos_token": "<|end_of_text|>"})");
  write_file(folder / "added_tokens.json", R"({"<|pad|>": 258})");
  const TempDir saved;
  learned(*load_tokenizer(folder.path()), {{"<think>"}})->save(saved.path());
  const Json config = Json::parse_file(saved / "tokenizer_config.json");
  EXPECT_EQ(config.at("extra_special_tokens").dump(), R"(["<|pad|>","<think>"])");
  EXPECT_EQ(config.find("additional_special_tokens"), nullptr);
  EXPECT_EQ(Json::parse_file(saved / "special_tokens_map.json").at("additional_special_tokens").dump(),
            R"(["<think>"])");
  EXPECT_EQ(Json::parse_file(saved / "added_tokens.json").at("<think>").as_int(), 259);
}

TEST(NewTokens, PiecesOfTheVocabularyKeepTheirIds) {
  Json json = description({{"a", "b"}});
  json.set("added_tokens", Json::Array{added_token(257, "<s>", {"special"}), added_token(258, "<x>")});
  const auto base = load(json);
  const auto tokenizer = learned(*base, {{"ab"}, {"<x>"}, {"<new>"}});
  EXPECT_EQ(tokenizer->find_token("ab"), 256);
  EXPECT_TRUE(tokenizer->is_special(256));
  EXPECT_TRUE(tokenizer->is_special(258));
  EXPECT_EQ(tokenizer->find_token("<new>"), 259);
  EXPECT_EQ(tokenizer->encode("cab", kPlain), (Ids{'c', 256}));
  EXPECT_EQ(tokenizer->vocab_size(), 260);
}

TEST(NewTokens, MistakesAreNamed) {
  const auto bytes = load_tokenizer("bytes");
  const auto fault = [&](const std::vector<NewToken>& tokens) { return error_of([&] { learned(*bytes, tokens); }); };
  EXPECT_THAT(fault({{"<|pad|>"}}), HasSubstr("\"<|pad|>\" is special token 258 of the tokenizer already"));
  EXPECT_THAT(fault({{"<|pad|>", false}}), HasSubstr("\"<|pad|>\" is special token 258 of the tokenizer already"));
  EXPECT_THAT(fault({{"<a>"}, {""}}), HasSubstr("token 2 of the list is empty"));
  EXPECT_THAT(fault({{"<a>"}, {"<b>"}, {"<a>"}}), HasSubstr("\"<a>\" is listed twice"));
  EXPECT_THAT(fault({{std::string(1025, 'x')}}), HasSubstr("has 1025 bytes; an added token has at most 1024"));
  const auto twice = learned(*bytes, {{"<t>", false}});
  EXPECT_THAT(error_of([&] {
                learned(*twice, {{"<t>", false}});
              }),
              HasSubstr("\"<t>\" is added token 259 of the tokenizer already"));
}

}  // namespace
}  // namespace quench
