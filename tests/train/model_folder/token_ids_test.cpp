// Sources of a model's token ids.

#include "train/model_folder/token_ids.h"

#include <gmock/gmock.h>

#include "data/tokenizer/byte_tokenizer.h"
#include "tests/testing.h"

namespace quench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const TokenIds kBytes{.bos = 256, .pad = 258, .eos = {257}};  // ids of the byte tokenizer
const TokenIds kPublished{.bos = 1, .pad = {}, .eos = {2, 7}};

class TokenIdChoiceTest : public ::testing::Test {
 protected:
  std::unique_ptr<Tokenizer> tokenizer_ = make_byte_tokenizer();
  TokenIdSources sources_{.model = "the model", .config = kPublished, .tokenizer = tokenizer_.get()};
};

TEST_F(TokenIdChoiceTest, PresetGivesWayToTheTokenizer) {
  const TokenIdChoice choice = choose_token_ids(sources_);
  EXPECT_EQ(choice.config, kBytes);
  EXPECT_EQ(choice.generation, kBytes);
  EXPECT_THAT(choice.disagreements, IsEmpty());
  EXPECT_THAT(choice.report, HasSubstr("end 257 \"<|end_of_text|>\" (the tokenizer)"));
  EXPECT_THAT(choice.report, HasSubstr("the model has begin 1, end 2 or 7, of another vocabulary"));
}

TEST_F(TokenIdChoiceTest, PublishedIdsStayWithTheirTokenizer) {
  sources_.published = sources_.models_tokenizer = true;
  sources_.config.eos = {2, 257};
  sources_.config.bos = 256;
  sources_.generation = TokenIds{.bos = 256, .pad = {}, .eos = {257, 2, 9}};
  const TokenIdChoice choice = choose_token_ids(sources_);
  EXPECT_EQ(choice.config, sources_.config);
  EXPECT_EQ(choice.generation, *sources_.generation);
  EXPECT_THAT(choice.disagreements, IsEmpty());
}

TEST_F(TokenIdChoiceTest, PublishedModelThatNamesNoIdsTakesThoseOfItsTokenizer) {
  sources_.published = sources_.models_tokenizer = true;
  sources_.config = {};
  EXPECT_EQ(choose_token_ids(sources_).config, (TokenIds{.bos = 256, .pad = {}, .eos = {257}}));
}

TEST_F(TokenIdChoiceTest, PublishedModelThatContradictsItsTokenizerIsReported) {
  sources_.published = sources_.models_tokenizer = true;
  const TokenIdChoice choice = choose_token_ids(sources_);
  EXPECT_EQ(choice.config, kPublished);
  ASSERT_EQ(choice.disagreements.size(), 2u);
  EXPECT_THAT(choice.disagreements[1], HasSubstr("the model has the end token 2 or 7"));
  EXPECT_THAT(choice.disagreements[1], HasSubstr("257 \"<|end_of_text|>\""));
}

TEST_F(TokenIdChoiceTest, IdsOfBothConfigsAreNamedOnceInTheWarning) {
  sources_.published = sources_.models_tokenizer = true;
  sources_.config = {.bos = 256, .pad = {}, .eos = {2}};
  sources_.generation = TokenIds{.bos = 256, .pad = {}, .eos = {2}};
  const TokenIdChoice choice = choose_token_ids(sources_);
  ASSERT_EQ(choice.disagreements.size(), 1u);
  EXPECT_THAT(choice.disagreements[0], HasSubstr("the end token 2, but"));
  EXPECT_THAT(choice.disagreements[0], HasSubstr(": 2 is used"));
}

TEST_F(TokenIdChoiceTest, AnotherTokenizerThanThePublishedOneGivesItsIdsAndIsReported) {
  sources_.published = true;
  const TokenIdChoice choice = choose_token_ids(sources_);
  EXPECT_EQ(choice.config, kBytes);
  EXPECT_EQ(choice.disagreements.size(), 2u);
}

TEST_F(TokenIdChoiceTest, NamedIdsWin) {
  sources_.named = Json::parse(R"({"eos_token_id": [5, 6], "hidden_size": 8})");
  const TokenIdChoice choice = choose_token_ids(sources_);
  EXPECT_THAT(choice.config.eos, ElementsAre(5, 6));
  EXPECT_EQ(choice.config.bos, 256);
  ASSERT_EQ(choice.disagreements.size(), 1u);
  EXPECT_THAT(choice.disagreements[0], HasSubstr("model.eos_token_id is 5 or 6, but the tokenizer's end token is 257"));
  sources_.named = Json::parse(R"({"eos_token_id": [257, 6]})");
  EXPECT_THAT(choose_token_ids(sources_).disagreements, IsEmpty());
}

TEST_F(TokenIdChoiceTest, WithoutATokenizerTheModelsIdsAreAllThereIs) {
  sources_.tokenizer = nullptr;
  EXPECT_EQ(choose_token_ids(sources_).config, kPublished);
}

TEST(TokenIds, AreReadFromAnyFormAndWrittenBack) {
  const TokenIds ids = token_ids_of(Json::parse(
      R"({"bos_token_id": [4, 5], "eos_token_id": [1, "x", -3, 2], "pad_token_id": null, "vocab_size": 9})"));
  EXPECT_EQ(ids, (TokenIds{.bos = 4, .pad = {}, .eos = {1, 2}}));
  EXPECT_EQ(to_string(ids), "begin 4, end 1 or 2, padding none");
  Json json = Json::object();
  set_token_ids(json, ids);
  EXPECT_EQ(json.dump(), R"({"bos_token_id":4,"eos_token_id":[1,2],"pad_token_id":null})");
  EXPECT_EQ(token_ids_of(Json::parse("[]")), TokenIds{});
}

TEST(TokenIds, TokenizerIsTheFoldersByItsFingerprint) {
  const testing::TempDir temp;
  const auto tokenizer = make_byte_tokenizer();
  nn::ModelConfig config;
  config.eos_token_ids = {2};
  EXPECT_FALSE(token_id_sources({}, config, tokenizer.get()).published);
  EXPECT_FALSE(token_id_sources(temp.path(), config, tokenizer.get()).models_tokenizer);
  config.eos_token_ids = {2, 257};
  EXPECT_TRUE(token_id_sources(temp.path(), config, tokenizer.get()).models_tokenizer) << "the folder holds none";
  config.eos_token_ids = {2};
  tokenizer->save(temp.path());
  EXPECT_TRUE(token_id_sources(temp.path(), config, tokenizer.get()).models_tokenizer);
  testing::write_file(temp / "tokenizer.json", "{}");
  EXPECT_FALSE(token_id_sources(temp.path(), config, tokenizer.get()).models_tokenizer);
}

}  // namespace
}  // namespace quench
