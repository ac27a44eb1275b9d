// Begin, end and padding ids from the tokenizer to the exported files, as a user meets them.

#include <gmock/gmock.h>

#include "tests/apps/run_project.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;

// The project's tokenizer has 280 tokens, the last three of which begin, end and pad.
class TokenIdsOfRuns : public testing::RunProject {
 protected:
  void expect_ids(const std::string& folder, const std::string& bos, const std::string& eos, const std::string& pad) {
    for (const std::string file : {"/config.json", "/generation_config.json"}) {
      const Json json = read_json(folder + file);
      const auto value = [&](const char* key) {
        const Json* found = json.find(key);
        return found == nullptr ? std::string("null") : found->dump();
      };
      EXPECT_EQ(value("bos_token_id"), bos) << folder << file;
      EXPECT_EQ(value("eos_token_id"), eos) << folder << file;
      EXPECT_EQ(value("pad_token_id"), pad) << folder << file;
    }
  }
  void expect_names(const std::string& folder) {
    const Json tokenizer = read_json(folder + "/tokenizer_config.json");
    EXPECT_EQ(tokenizer.at("bos_token").as_string(), "<|begin_of_text|>") << folder;
    EXPECT_EQ(tokenizer.at("eos_token").as_string(), "<|end_of_text|>") << folder;
  }
};

TEST_F(TokenIdsOfRuns, OwnTokenizerGivesTheIdsOfAPresetsRun) {
  write_config(R"({"preset": "llama-10m", "vocab_size": 280, "hidden_size": 48, "num_attention_heads": 4,
    "num_key_value_heads": 2, "num_hidden_layers": 2, "intermediate_size": 64})");
  const Outcome train = run({"train", "run.json", "--export.format=hf"});
  ASSERT_EQ(train.status, 0) << train.errors;
  EXPECT_THAT(train.output, HasSubstr("end 278 \"<|end_of_text|>\" (the tokenizer)"));
  expect_ids("run/export", "277", "278", "279");
  expect_names("run/export");
  expect_ok({"export", "--checkpoint", "run", "--output", "again"});
  expect_ids("again", "277", "278", "279");
  const Outcome generated = run(generate("again"));
  ASSERT_EQ(generated.status, 0) << generated.errors;
  const Json result = Json::parse(generated.output);
  EXPECT_THAT(result.at("text").as_string(), Not(HasSubstr("<|end_of_text|><|")));
}

TEST_F(TokenIdsOfRuns, OwnTokenizerGivesTheIdsWithoutAPreset) {
  write_config(R"({"model_type": "llama", "vocab_size": 280, "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64})");
  expect_ok({"train", "run.json", "--export.format=hf"});
  expect_ids("run/export", "277", "278", "279");
}

TEST_F(TokenIdsOfRuns, TokenizerBesideTheShardsIsTakenWhereNoneIsNamed) {
  write_config(R"({"preset": "tiny", "vocab_size": 280})", "");
  expect_ok({"train", "run.json", "--export.format=hf"});
  expect_ids("run/export", "277", "278", "279");
  EXPECT_TRUE(fs::exists(work() / "run/export/tokenizer.json"));
  EXPECT_EQ(run(generate("run")).status, 0);
}

TEST_F(TokenIdsOfRuns, NamedIdsWinAndTheDisagreementIsReported) {
  const Outcome train =
      run({"train", "run.json", "--export.format=hf", "--training.steps=2", "--model.eos_token_id=5"});
  ASSERT_EQ(train.status, 0) << train.errors;
  EXPECT_THAT(
      train.errors,
      HasSubstr("model.eos_token_id is 5, but the tokenizer's end token is 278 \"<|end_of_text|>\": 5 is used"));
  expect_ids("run/export", "277", "5", "279");
  expect_ok({"export", "--checkpoint", "run", "--output", "again"});
  expect_ids("again", "277", "5", "279");
}

TEST_F(TokenIdsOfRuns, SeveralEndIdsOfAPublishedModelAreKept) {
  make_base();
  const Outcome train = run({"train", "run.json", "--export.format=hf", "--training.steps=2"});
  ASSERT_EQ(train.status, 0) << train.errors;
  EXPECT_THAT(train.errors, Not(HasSubstr("token ids:")));
  EXPECT_THAT(train.output, HasSubstr("end 278 or 12 or 13 (model.path base)"));
  for (const std::string folder : {"run/export", "run/model"}) {
    EXPECT_EQ(read_json(folder + "/config.json").at("eos_token_id").dump(), "[278,12]") << folder;
    EXPECT_EQ(testing::read_file(work() / folder / "generation_config.json"),
              testing::read_file(work() / "base" / "generation_config.json"))
        << folder;
  }
}

TEST_F(TokenIdsOfRuns, AnotherTokenizerThanTheModelsIsReportedAndGivesTheIds) {
  make_base();
  expect_ok({"tokenize", "train", "--input", "corpus.txt", "--vocab-size", "270", "--output", "other"});
  expect_ok({"tokenize", "--tokenizer", "other", "--input", "corpus.txt", "--split", "blank_line", "--output",
             "other_shards"});
  const Outcome train = run({"train", "run.json", "--data.train=other_shards/train-*.bin",
                             "--data.validation=", "--evaluation.interval=0", "--data.tokenizer=other",
                             "--export.format=hf", "--training.steps=2"});
  ASSERT_EQ(train.status, 0) << train.errors;
  EXPECT_THAT(train.errors, HasSubstr("model.path base has the end token 278 or 12 or 13"));
  EXPECT_THAT(train.errors, HasSubstr("268 \"<|end_of_text|>\""));
  expect_ids("run/export", "267", "268", "269");
  EXPECT_EQ(read_json("run/export/generation_config.json").at("temperature").as_double(), 0.6) << "the rest is kept";

  // The same tokenizer put on a model folder.
  const Outcome exported = run({"export", "--checkpoint", "base", "--tokenizer", "other", "--output", "changed"});
  ASSERT_EQ(exported.status, 0) << exported.errors;
  EXPECT_THAT(exported.errors, HasSubstr("another"));
  expect_ids("changed", "267", "268", "269");
  EXPECT_EQ(testing::read_file(work() / "changed/tokenizer.json"), testing::read_file(work() / "other/tokenizer.json"));
  EXPECT_FALSE(fs::exists(work() / "changed/chat_template.jinja")) << "it is written in the other tokenizer's tokens";
}

TEST_F(TokenIdsOfRuns, PresetsIdsAreNoFaultOfASmallerVocabulary) {
  write_config(R"({"preset": "qwen2.5-0.5b", "vocab_size": 280, "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1})");
  expect_ok({"train", "run.json", "--training.steps=1", "--export.format=hf"});
  expect_ids("run/export", "277", "278", "279");
}

TEST_F(TokenIdsOfRuns, BareTokenizerFileIsExportedWithItsSpecialTokensNamed) {
  fs::remove(work() / "tokenizer/tokenizer_config.json");
  fs::remove_all(work() / "shards");
  expect_ok({"tokenize", "--tokenizer", "tokenizer/tokenizer.json", "--input", "corpus.txt", "--split", "blank_line",
             "--output", "shards", "--validation", "0.1"});
  write_config(R"({"preset": "tiny", "vocab_size": 280})", R"(, "tokenizer": "tokenizer/tokenizer.json")");
  expect_ok({"train", "run.json", "--training.steps=1", "--export.format=hf"});
  expect_ids("run/export", "277", "278", "279");
  expect_names("run/export");
  EXPECT_FALSE(fs::exists(work() / "run/model/tokenizer_config.json")) << "the run's tokenizer stays as it was";
}

TEST_F(TokenIdsOfRuns, TokenizerFileOfAnyNameIsKeptUnderTheUsualOne) {
  fs::create_directory(work() / "vocabularies");
  fs::rename(work() / "tokenizer/tokenizer.json", work() / "vocabularies/english.json");
  fs::rename(work() / "tokenizer/tokenizer_config.json", work() / "vocabularies/tokenizer_config.json");
  write_config(R"({"preset": "tiny", "vocab_size": 280})", R"(, "tokenizer": "vocabularies/english.json")");
  expect_ok({"train", "run.json", "--export.format=hf"});
  expect_ids("run/export", "277", "278", "279");
  EXPECT_EQ(testing::read_file(work() / "run/export/tokenizer.json"),
            testing::read_file(work() / "vocabularies/english.json"));
  fs::remove_all(work() / "vocabularies");
  EXPECT_EQ(run(generate("run")).status, 0);
}

TEST_F(TokenIdsOfRuns, GenerationEndsAtAnyOfThePublishedEnds) {
  make_base();
  // The first token that the model would write becomes one of its ends.
  const Json free = Json::parse(run(generate("base")).output);
  const std::int64_t first = free.at("tokens").as_array().front().as_int();
  testing::write_file(work() / "base" / "generation_config.json",
                      R"({"eos_token_id": [278, )" + std::to_string(first) + "]}");
  const Json stopped = Json::parse(run(generate("base")).output);
  EXPECT_TRUE(stopped.at("stopped").as_bool());
  EXPECT_EQ(stopped.at("tokens").as_array().size(), 1u);
}

}  // namespace
}  // namespace quench
