// From text to a generating model through the program's verbs, and a run that is killed again and again.

#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <map>
#include <random>
#include <thread>

#include "core/json/json.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::read_file;
using testing::run_program;
using testing::TempDir;
using testing::write_file;

// Sentences of a small grammar: enough structure for a tiny model to learn in a few steps.
std::string corpus(int sentences) {
  const std::array<const char*, 4> subjects = {"the cat", "a dog", "my friend", "the old king"};
  const std::array<const char*, 4> verbs = {"sees", "likes", "finds", "remembers"};
  const std::array<const char*, 4> objects = {"the river", "a small house", "the morning", "an apple"};
  std::mt19937 random(1);
  std::string text;
  for (int i = 0; i < sentences; ++i) {
    text += std::string(subjects[random() % 4]) + " " + verbs[random() % 4] + " " + objects[random() % 4] + ".\n";
    if (i % 10 == 9) text += "\n";
  }
  return text;
}

std::string run_config(const std::string& extra_training = "") {
  return R"({
    "model": {"model_type": "llama", "vocab_size": 300, "hidden_size": 32, "intermediate_size": 64,
              "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
              "max_position_embeddings": 128, "tie_word_embeddings": true},
    "data": {"train": ["shards/train-*.bin"], "validation": ["shards/val.bin"], "tokenizer": "tokenizer", "seq_len": 32},
    "training": {"steps": 60, "micro_batch_size": 4, "dtype": "f32")" +
         extra_training + R"(},
    "optimizer": {"lr": 1e-2},
    "checkpoint": {"interval": 20},
    "metrics": {"log_every": 1},
    "evaluation": {"interval": 30},
    "export": {"format": "hf", "folder": "model"},
    "run": {"folder": "run"}})";
}

class EndToEnd : public ::testing::Test {
 protected:
  void SetUp() override {
    write_file(folder_ / "corpus.txt", corpus(600));
    write_file(folder_ / "held_out.txt", corpus(40));
    write_file(folder_ / "run.json", run_config());
  }

  Outcome run(const std::vector<std::string>& arguments) { return run_program(folder_.path(), arguments); }
  void expect_ok(const std::vector<std::string>& arguments) {
    const Outcome outcome = run(arguments);
    ASSERT_EQ(outcome.status, 0) << arguments[0] << ": " << outcome.errors << outcome.output;
  }
  void tokenize() {
    expect_ok({"tokenize", "train", "--input", "corpus.txt", "--vocab-size", "300", "--output", "tokenizer"});
    expect_ok({"tokenize", "--tokenizer", "tokenizer", "--input", "corpus.txt", "--split", "blank_line", "--output",
               "shards", "--validation", "0.1"});
  }
  // step -> loss as written, over all records.
  [[nodiscard]] std::map<std::int64_t, std::string> losses(const std::string& name = "run") const {
    std::map<std::int64_t, std::string> result;
    std::istringstream lines(read_file(folder_ / name / "metrics" / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const Json record = Json::parse(line);
      EXPECT_TRUE(result.emplace(record.at("step").as_int(), record.at("loss").dump()).second)
          << "step twice: " << line;
    }
    return result;
  }

  TempDir folder_;
};

TEST_F(EndToEnd, TextToModelToText) {
  tokenize();
  expect_ok({"config", "check", "run.json"});
  const Outcome estimate = run({"estimate", "run.json", "--json"});
  EXPECT_EQ(estimate.status, 0) << estimate.errors;
  EXPECT_GT(Json::parse(estimate.output).at("total_bytes").as_int(), 1'000'000);

  const Outcome train = run({"train", "run.json"});
  ASSERT_EQ(train.status, 0) << train.errors;
  EXPECT_THAT(train.output, HasSubstr("step 60/60"));
  EXPECT_THAT(train.output, HasSubstr("validation at step 60"));
  EXPECT_EQ(losses().size(), 60u);

  const Outcome eval = run({"eval", "--model", "model", "--data", "held_out.txt", "--json"});
  ASSERT_EQ(eval.status, 0) << eval.errors;
  const Json scores = Json::parse(eval.output);
  EXPECT_LT(scores.at("token_perplexity").as_double(), 30) << "of 300 before training";
  EXPECT_LT(scores.at("byte_perplexity").as_double(), scores.at("token_perplexity").as_double());

  // The exported folder, the run folder and one checkpoint are the same model.
  std::string text;
  for (const std::string model : {"model", "run", "run/checkpoints/step-60"}) {
    const Outcome generated =
        run({"generate", "--model", model, "--prompt", "the cat ", "--max-new-tokens", "12", "--json"});
    ASSERT_EQ(generated.status, 0) << generated.errors;
    const std::string continuation = Json::parse(generated.output).at("text").as_string();
    if (!text.empty()) {
      EXPECT_EQ(continuation, text) << model;
    }
    text = continuation;
  }
  EXPECT_FALSE(text.empty());

  expect_ok({"inspect", "run/checkpoints/step-60", "--verify"});
  expect_ok({"report", "run"});
  EXPECT_THAT(read_file(folder_ / "run" / "report.html"), HasSubstr(R"("curves":{"loss":{"x":[1,)"));
  expect_ok({"export", "--checkpoint", "run", "--format", "hf", "--output", "again"});
  EXPECT_EQ(read_file(folder_ / "again" / "model.safetensors"), read_file(folder_ / "model" / "model.safetensors"));
  EXPECT_EQ(read_file(folder_ / "again" / "tokenizer.json"), read_file(folder_ / "tokenizer" / "tokenizer.json"));
}

TEST_F(EndToEnd, DamageIsFoundAndHasItsOwnStatus) {
  tokenize();
  expect_ok({"train", "run.json", "--training.steps=20"});
  const auto file = folder_ / "run/checkpoints/step-20/rank-00000.safetensors";
  std::string bytes = read_file(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(file, bytes);
  const Outcome outcome = run({"inspect", "run/checkpoints/step-20", "--verify"});
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(outcome.errors, HasSubstr("rank-00000.safetensors"));
}

TEST_F(EndToEnd, BadUsageAndBadConfigsAreStatusTwo) {
  EXPECT_EQ(run({"trian"}).status, 2);
  EXPECT_EQ(run({"train"}).status, 2);
  const Outcome outcome = run({"train", "run.json", "--training.setps=3", "--optimizer.lr=fast"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.errors, HasSubstr("training.steps"));
  EXPECT_THAT(outcome.errors, HasSubstr("optimizer.lr"));
  EXPECT_EQ(run({"generate", "--model", "absent", "--prompt", "x"}).status, 1);
  EXPECT_EQ(run({"--help"}).status, 0);
  EXPECT_EQ(run({"train", "--help"}).status, 0);
}

TEST_F(EndToEnd, StopSignalsSaveAndTheRunGoesOnExactly) {
  tokenize();
  expect_ok({"train", "run.json", "--run.folder=whole"});
  for (const int signal : {SIGTERM, SIGINT}) {
    std::filesystem::remove_all(folder_ / "run");
    const pid_t child = testing::start_program(folder_.path(), {"train", "run.json"});
    while (!std::filesystem::exists(folder_ / "run/metrics/metrics.jsonl") ||
           read_file(folder_ / "run/metrics/metrics.jsonl").find("\"step\":5,") == std::string::npos) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      siginfo_t ended{};  // looked at, not reaped: the number is not another program's before finish_program()
      ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT), 0);
      if (ended.si_pid != 0) break;
    }
    ::kill(child, signal);
    EXPECT_EQ(testing::finish_program(folder_.path(), child).status, 128 + signal);
    expect_ok({"train", "run.json"});
    EXPECT_EQ(losses(), losses("whole"));
  }
}

// The promise in one test: kill -9 at fifty random moments, restart each time, and nothing differs.
TEST_F(EndToEnd, SlowKilledFiftyTimesEqualsUninterrupted) {
  tokenize();
  const std::vector<std::string> arguments{"train", "run.json", "--training.steps=400", "--checkpoint.interval=1",
                                           "--evaluation.interval=0"};
  std::vector<std::string> whole = arguments;
  whole.insert(whole.end(), {"--run.folder=whole", "--checkpoint.interval=200"});
  expect_ok(whole);
  std::mt19937 random(7);
  int kills = 0;
  while (kills < 50) {
    const pid_t child = testing::start_program(folder_.path(), arguments);
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 280));
    ::kill(child, SIGKILL);
    const Outcome ended = testing::finish_program(folder_.path(), child);
    if (ended.status == 0) {  // finished before its time: start over, the kills count on
      EXPECT_EQ(losses(), losses("whole"));
      std::filesystem::remove_all(folder_ / "run");
      continue;
    }
    ASSERT_EQ(ended.status, 128 + SIGKILL) << ended.errors;
    ++kills;
  }
  expect_ok(arguments);
  EXPECT_EQ(losses(), losses("whole"));
  const auto newest = [&](const std::string& name) {
    return read_file(folder_ / name / "checkpoints/step-400/rank-00000.safetensors").size();
  };
  EXPECT_EQ(newest("run"), newest("whole"));
  EXPECT_EQ(read_file(folder_ / "model/model.safetensors").size() > 0, true);
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "run/checkpoints"))
    EXPECT_EQ(entry.path().string().find(".tmp-"), std::string::npos) << "left behind: " << entry.path();
}

}  // namespace
}  // namespace quench
