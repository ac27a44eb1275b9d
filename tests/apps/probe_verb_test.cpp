// The probe verb, and "auto" where a recipe is named, as a user meets them.

#include <gmock/gmock.h>

#include "core/json/json.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::read_file;
using testing::run_program;
using testing::TempDir;
using testing::write_file;

class ProbeVerb : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 300; ++i) text += fmt::format("line {} of a text with {} words\n", i, i * i % 97);
    write_file(folder_ / "corpus.txt", text);
    write_file(folder_ / "run.json", R"({
      "model": {"model_type": "llama", "vocab_size": 300, "hidden_size": 32, "intermediate_size": 64,
                "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
                "max_position_embeddings": 128, "tie_word_embeddings": false},
      "data": {"train": ["corpus.txt"], "tokenizer": "bytes", "seq_len": 32},
      "training": {"steps": 3, "micro_batch_size": 2, "dtype": "f32"},
      "metrics": {"progress": "off"}, "run": {"folder": "run"}})");
  }
  Outcome run(const std::vector<std::string>& arguments) { return run_program(folder_.path(), arguments); }

  TempDir folder_;
};

TEST_F(ProbeVerb, PrintsTimesErrorsAndTheSectionToPaste) {
  const Outcome outcome = run({"probe", "run.json", "--device=cpu"});
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  for (const char* part : {"qkv_proj", "32 -> 128", "float8_rowwise_with_gw_hp", "the run's first micro-batch",
                           "those of emulation", "chosen: bf16", "\"recipe\": {"})
    EXPECT_THAT(outcome.output, HasSubstr(part));
  EXPECT_THAT(outcome.output, Not(HasSubstr("nan")));
}

TEST_F(ProbeVerb, JsonHoldsEveryNumber) {
  const Outcome outcome = run({"probe", "run.json", "--device", "cpu", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const Json json = Json::parse(outcome.output);
  EXPECT_TRUE(json.at("emulated").as_bool());
  EXPECT_EQ(json.at("tokens").as_int(), 64);
  ASSERT_EQ(json.at("layers").as_array().size(), 4u);
  for (const Json& layer : json.at("layers").as_array()) {
    EXPECT_GT(layer.at("bf16_ms").as_double(), 0);
    for (const Json& recipe : layer.at("recipes").as_array()) {
      EXPECT_GT(recipe.at("ms").as_double(), 0);
      EXPECT_GT(recipe.at("median_error").at("y").as_double(), 0.01);
      EXPECT_LT(recipe.at("worst_error").at("y").as_double(), 0.08);
      EXPECT_EQ(recipe.at("layers").as_int(), 3);
    }
  }
  EXPECT_EQ(json.at("errors").as_array().size(), 48u);
  EXPECT_EQ(json.at("choice").at("name").as_string(), "bf16");
  EXPECT_EQ(json.at("config").at("recipe").at("name").as_string(), "bf16");
}

TEST_F(ProbeVerb, AnOutputThatCannotBeWrittenIsRefusedFirst) {
  for (const auto& [output, words] : {std::pair{"missing/chosen.json", "no folder"}, {".", "is a folder"}}) {
    const Outcome outcome = run({"probe", "run.json", "--device=cpu", "--output", output});
    EXPECT_NE(outcome.status, 0);
    EXPECT_THAT(outcome.errors, HasSubstr(words));
    EXPECT_THAT(outcome.errors, Not(HasSubstr("timing"))) << "nothing was measured";
    EXPECT_EQ(outcome.output, "");
  }
}

// What only float8 gradients have does not stay in a config without any.
TEST_F(ProbeVerb, OutputWithoutFloat8RoundsToNearest) {
  const Outcome outcome = run({"probe", "run.json", "--device=cpu", "--recipe.name=auto",
                               "--recipe.gradient_rounding=stochastic", "--output", "chosen.json"});
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(run({"config", "check", "chosen.json"}).status, 0);
  const Json config = Json::parse(read_file(folder_ / "chosen.json"));
  EXPECT_EQ(config.at("recipe").at("gradient_rounding").as_string(), "nearest");
}

TEST_F(ProbeVerb, OutputIsAConfigThatTrains) {
  const Outcome outcome =
      run({"probe", "run.json", "--device=cpu", "--training.steps=2", "--output", "chosen.json", "--max-error=0.05"});
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, HasSubstr("wrote chosen.json"));
  EXPECT_THAT(outcome.output, HasSubstr("5.0% is allowed"));
  EXPECT_EQ(run({"config", "check", "chosen.json"}).status, 0);
  const Json config = Json::parse(read_file(folder_ / "chosen.json"));
  EXPECT_EQ(config.at("recipe").at("name").as_string(), "bf16");
  EXPECT_EQ(config.at("training").at("steps").as_int(), 2);
  const Outcome train = run({"train", "chosen.json", "--device=cpu"});
  EXPECT_EQ(train.status, 0) << train.errors;
}

// A micro-batch that would take minutes is measured in part, and the tables say so.
TEST_F(ProbeVerb, TimeOnACpuIsBounded) {
  const std::vector<std::string> large{
      "probe", "run.json", "--device=cpu", "--training.micro_batch_size=4096", "--seconds=1", "--unset=data.train"};
  const Outcome text = run(large);
  ASSERT_EQ(text.status, 0) << text.errors;
  EXPECT_THAT(text.errors, HasSubstr("of a micro-batch's 131,072 tokens, to end within about 1 seconds (--seconds)"));
  EXPECT_THAT(text.output, HasSubstr("tokens of a micro-batch, within the time limit (--seconds 0: no limit)"));
  std::vector<std::string> as_json = large;
  as_json.push_back("--json");
  const Json json = Json::parse(run(as_json).output);
  EXPECT_EQ(json.at("tokens").as_int(), 131072);
  EXPECT_LT(json.at("measured_tokens").as_int(), 131072 / 4);
  EXPECT_LT(json.at("seconds").as_double(), 10);
  EXPECT_EQ(run({"probe", "run.json", "--device=cpu", "--seconds=soon"}).status, 2);
}

TEST_F(ProbeVerb, WithoutDataTheTokensAreRandom) {
  const Outcome outcome = run({"probe", "run.json", "--device=cpu", "--unset=data.train"});
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, HasSubstr("on random tokens"));
}

TEST_F(ProbeVerb, BadInputIsRefused) {
  EXPECT_EQ(run({"probe"}).status, 2);
  EXPECT_EQ(run({"probe", "--help"}).status, 0);
  for (const char* value : {"--max-error=0", "--max-error=1.5", "--max-error=few", "--max-error=", "--max-error"}) {
    const Outcome outcome = run({"probe", "run.json", "--device=cpu", value});
    EXPECT_EQ(outcome.status, 2) << value;
    EXPECT_THAT(outcome.errors, HasSubstr("--max-error")) << value;
  }
  EXPECT_EQ(run({"probe", "run.json", "--device=cpu", "--output"}).status, 2);
  const Outcome unknown = run({"probe", "run.json", "--device=cpu", "--training.setps=1"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.errors, HasSubstr("training.steps"));
  const Outcome pattern = run({"probe", "run.json", "--device=cpu", "--recipe.filter.exclude=*.w_proj"});
  EXPECT_EQ(pattern.status, 2);
  EXPECT_THAT(pattern.errors, HasSubstr("*.w_proj"));
  EXPECT_EQ(run({"probe", "run.json", "--device=cpu", "--data.train=absent.txt"}).status, 1);
}

TEST_F(ProbeVerb, AutoTrainsAndIsNoRecipeToForwardWith) {
  const Outcome train = run({"train", "run.json", "--device=cpu", "--recipe.name=auto"});
  ASSERT_EQ(train.status, 0) << train.errors;
  EXPECT_THAT(train.output,
              HasSubstr("recipe: auto, which is f32 (recipe bf16, no low precision): cpu has no float8 tensor cores"));
  const Outcome estimate = run({"estimate", "run.json", "--device=cpu", "--recipe.name=auto"});
  EXPECT_EQ(estimate.status, 0) << estimate.errors;
  EXPECT_THAT(estimate.output, HasSubstr("this is for bf16"));
  const Outcome forward =
      run({"forward", "--model", "run", "--input", "x", "--output", "y", "--recipe", "auto", "--device", "cpu"});
  EXPECT_EQ(forward.status, 2);
  EXPECT_THAT(forward.errors, HasSubstr("quench probe"));
}

}  // namespace
}  // namespace quench
