// quench best-of: records of the best answers.

#include <gmock/gmock.h>

#include <sstream>

#include "core/json/json.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_program;

class BestOfVerb : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::copy(testing::source_dir() / "tests/train/rolling_likelihood/bos", folder_ / "model");
    testing::write_file(folder_ / "prompts.jsonl",
                        "{\"prompt\": \"one\", \"answer\": \"1\"}\n{\"prompt\": \"two\", \"answer\": \"2\"}\n"
                        "{\"prompt\": \"three\", \"answer\": \"3\"}\n");
    testing::write_file(folder_ / "run.json", R"({
      "model": {"path": "model"}, "data": {"train": ["prompts.jsonl"], "seq_len": 48},
      "training": {"steps": 1, "micro_batch_size": 1, "global_batch_size": 2, "dtype": "f32"},
      "grpo": {"num_generations": 6, "max_completion_length": 8, "rewards": "command",
               "reward_command": "python3 -c 'import sys, json\nfor line in sys.stdin: print(len(json.loads(line)[\"completion\"]))'",
               "best_of": {"file": "best.jsonl"}}})");
  }
  [[nodiscard]] Outcome run(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"best-of", "run.json", "--device=cpu", "--training.threads=1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(folder_.path(), arguments);
  }
  [[nodiscard]] std::vector<Json> best(const std::string& name = "best.jsonl") const {
    std::vector<Json> records;
    std::istringstream lines(testing::read_file(folder_ / name));
    for (std::string line; std::getline(lines, line);) records.push_back(Json::parse(line));
    return records;
  }
  testing::TempDir folder_;
};

TEST_F(BestOfVerb, TheBestAnswerOfEachPromptIsWrittenInItsOrder) {
  const Outcome outcome = run({"--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const Json counts = Json::parse(outcome.output);
  EXPECT_EQ(counts.at("prompts").as_int(), 3);
  EXPECT_EQ(counts.at("accepted").as_int(), 3);
  const std::vector<Json> records = best();
  ASSERT_EQ(records.size(), 3u);
  const std::vector<std::string> prompts = {"one", "two", "three"};
  double sum = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(records[i].at("prompt").as_string(), prompts[i]);
    EXPECT_FALSE(records[i].at("completion").as_string().empty());
    EXPECT_GT(records[i].at("reward").as_double(), 0);
    sum += records[i].at("reward").as_double();
  }
  EXPECT_NEAR(counts.at("mean_reward").as_double(), sum / 3, 1e-9);
  ASSERT_EQ(run({"--grpo.best_of.file=again.jsonl"}).status, 0);
  EXPECT_EQ(testing::read_file(folder_ / "again.jsonl"), testing::read_file(folder_ / "best.jsonl"));
  // They are training data.
  testing::write_file(folder_ / "tune.json", R"({
      "model": {"path": "model"}, "data": {"train": ["best.jsonl"], "seq_len": 16, "packing": false},
      "training": {"steps": 2, "micro_batch_size": 1, "global_batch_size": 1, "dtype": "f32"}})");
  const Outcome tuned = run_program(folder_.path(), {"train", "tune.json", "--device=cpu", "--quiet"});
  EXPECT_EQ(tuned.status, 0) << tuned.errors;
}

// Folders, columns, records that are left out and bad ones: as the same config trains.
TEST_F(BestOfVerb, DataIsReadAsInTraining) {
  fs::create_directory(folder_ / "data");
  testing::write_file(folder_ / "data/train.jsonl",
                      "{\"question\": \"one\"}\n{\"question\": \"two\", \"train\": false}\nno json\n"
                      "{\"question\": \"three\"}\n");
  const std::vector<std::string> more = {"--data.train=data", R"(--data.columns={"prompt": "question"})",
                                         "--data.on_bad_record=skip"};
  const Outcome outcome = run(more);
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("train.jsonl:3"));
  const std::vector<Json> records = best();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].at("prompt"), Json("one"));
  EXPECT_EQ(records[1].at("prompt"), Json("three"));
  const Outcome strict = run({more[0], more[1]});
  EXPECT_NE(strict.status, 0);
  EXPECT_THAT(strict.errors, HasSubstr("train.jsonl:3"));
}

TEST_F(BestOfVerb, AnswersBelowTheMinimumAreLeftOut) {
  ASSERT_EQ(run({"--grpo.best_of.minimum=1000"}).status, 0);
  EXPECT_TRUE(best().empty());
}

TEST_F(BestOfVerb, MistakesAreNamedAndWriteNothing) {
  const auto refused = [&](const std::string& reason, const std::vector<std::string>& more) {
    const Outcome outcome = run(more);
    EXPECT_NE(outcome.status, 0);
    EXPECT_THAT(outcome.errors, HasSubstr(reason));
    EXPECT_FALSE(fs::exists(folder_ / "best.jsonl"));
  };
  refused("grpo.best_of.file", {"--grpo.best_of.file=null"});
  refused("exit status 3", {"--grpo.reward_command=exit 3"});
  testing::write_file(folder_ / "prompts.jsonl", "{\"prompt\": \"one\"}\n{\"text\": \"no prompt\"}\n");
  refused("prompts.jsonl:2", {});
}

}  // namespace
}  // namespace quench
