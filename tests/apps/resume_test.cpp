// Runs that are stopped, damaged, changed and gone on with, through the program.

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "core/json/json.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::read_file;
using testing::run_program;
using testing::TempDir;
using testing::write_file;

class Resume : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i * 37 % 101) + " of the text\n";
    write_file(folder_ / "text.txt", text);
    write_file(folder_ / "run.json", R"({
      "model": {"model_type": "llama", "vocab_size": 260, "hidden_size": 32, "intermediate_size": 48,
                "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                "max_position_embeddings": 64, "tie_word_embeddings": true},
      "data": {"train": ["text.txt"], "tokenizer": "bytes", "seq_len": 32},
      "training": {"steps": 20, "micro_batch_size": 2, "dtype": "f32"},
      "lr_schedule": {"decay_steps": 100},
      "checkpoint": {"interval": 10, "keep_latest": 0},
      "metrics": {"log_every": 1},
      "run": {"folder": "run"}})");
  }

  Outcome train(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"train", "run.json"});
    return run_program(folder_.path(), more);
  }
  void expect_trained(const std::vector<std::string>& more = {}) {
    const Outcome outcome = train(more);
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
  }
  [[nodiscard]] fs::path checkpoint(int step) const {
    return folder_ / ("run/checkpoints/step-" + std::to_string(step));
  }
  // Starts a run of many steps and returns when it has done `step` of them, or has ended.
  [[nodiscard]] pid_t start_until(int step, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"train", "run.json", "--training.steps=1000000", "--checkpoint.interval=0"});
    const pid_t child = testing::start_program(folder_.path(), more);
    const std::string record = "\"step\":" + std::to_string(step) + ",";
    while (!fs::exists(folder_ / "run/metrics/metrics.jsonl") ||
           read_file(folder_ / "run/metrics/metrics.jsonl").find(record) == std::string::npos) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      siginfo_t ended{};
      EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT), 0);
      if (ended.si_pid != 0) break;
    }
    return child;
  }
  // The newest checkpoint's step; 0: none.
  [[nodiscard]] int newest() const {
    int step = 0;
    if (fs::exists(folder_ / "run/checkpoints"))
      for (const auto& entry : fs::directory_iterator(folder_ / "run/checkpoints"))
        if (const std::string name = entry.path().filename().string(); name.starts_with("step-"))
          step = std::max(step, std::stoi(name.substr(5)));
    return step;
  }

  TempDir folder_;
};

TEST_F(Resume, RemovedManifestsStopTheRunAndNothingIsOverwritten) {
  expect_trained();
  for (const int step : {10, 20}) fs::remove(checkpoint(step) / "manifest.json");
  const std::string data = read_file(checkpoint(10) / "rank-00000.safetensors");
  const Outcome outcome = train({"--training.steps=30"});
  EXPECT_EQ(outcome.status, 3) << outcome.output;
  EXPECT_THAT(outcome.errors, HasSubstr("step-10: it has no manifest.json"));
  EXPECT_THAT(outcome.errors, HasSubstr("step-20: it has no manifest.json"));
  EXPECT_THAT(outcome.errors, HasSubstr("--checkpoint.resume=never"));
  EXPECT_EQ(read_file(checkpoint(10) / "rank-00000.safetensors"), data);
}

TEST_F(Resume, AStepThatIsNotThereIsNamedWithThoseThatAre) {
  expect_trained();
  const Outcome outcome = train({"--training.steps=30", "--checkpoint.resume=15"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.errors, HasSubstr("has no checkpoint of step 15; it has those of "));
  EXPECT_EQ(newest(), 20);
}

TEST_F(Resume, TheRunsConfigResumesWhateverTheFirstStartResumedFrom) {
  expect_trained();
  const int before = newest();
  expect_trained({"--checkpoint.resume=never", "--checkpoint.allow_changes=training.seed", "--training.seed=7"});
  const Json written = Json::parse(read_file(folder_ / "run/config.json"));
  EXPECT_EQ(written.at("checkpoint").at("resume").as_string(), "auto");
  EXPECT_TRUE(written.at("checkpoint").at("allow_changes").as_array().empty());
  const Outcome next =
      run_program(folder_.path(), {"train", "run/config.json", "--training.steps=" + std::to_string(before + 5)});
  EXPECT_EQ(next.status, 0) << next.errors;
  EXPECT_THAT(next.output, HasSubstr("resumed from run/checkpoints/step-" + std::to_string(before)));
}

TEST_F(Resume, AStoppedFreshStartNamesTheConfigThatResumesIt) {
  const pid_t child = start_until(3, {"--checkpoint.resume=never"});
  ::kill(child, SIGTERM);
  const Outcome outcome = testing::finish_program(folder_.path(), child);
  EXPECT_EQ(outcome.status, 143) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("resume with quench train run/config.json"));
}

TEST_F(Resume, ALauncherThatRestartsTakesNoStartThatLosesSteps) {
  const Outcome refused = run_program(folder_.path(), {"run", "--standalone", "--nproc-per-node", "1", "--max-restarts",
                                                       "2", "train", "run.json", "--checkpoint.resume=never"});
  EXPECT_EQ(refused.status, 2) << refused.errors;
  EXPECT_THAT(refused.errors, HasSubstr("(--max-restarts 2): use it without --max-restarts"));
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(Resume, ARunWithRecordsAndNoCheckpointsWarns) {
  expect_trained();
  fs::rename(folder_ / "run/checkpoints", folder_ / "away");
  const Outcome outcome = train();
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("holds no checkpoint: training starts at step 0"));
}

TEST_F(Resume, TwoStopSignalsAtOnceSave) {
  const pid_t child = start_until(3);
  ::kill(child, SIGTERM);
  ::kill(child, SIGTERM);
  const Outcome outcome = testing::finish_program(folder_.path(), child);
  EXPECT_EQ(outcome.status, 143) << outcome.errors;
  EXPECT_GE(newest(), 3);
}

TEST_F(Resume, AHangUpSaves) {
  const pid_t child = start_until(3);
  ::kill(child, SIGHUP);
  const Outcome outcome = testing::finish_program(folder_.path(), child);
  EXPECT_EQ(outcome.status, 129) << outcome.errors;
  EXPECT_GE(newest(), 3);
}

// Shards made by the program, and a config that trains on them.
class ResumeShards : public Resume {
 protected:
  void SetUp() override {
    Resume::SetUp();
    const Outcome made =
        run_program(folder_.path(), {"tokenize", "--tokenizer", "bytes", "--input", "text.txt", "--output", "shards"});
    ASSERT_EQ(made.status, 0) << made.errors;
  }
  const std::vector<std::string> on_shards_ = {"--data.train=[\"shards/train-*.bin\"]"};
  const std::string shard_ = "shards/train-00000.bin";
};

TEST_F(ResumeShards, ARunWhoseDataAreReplacedSavesWhatItHas) {
  const std::string data = read_file(folder_ / shard_);
  const pid_t child = start_until(3, on_shards_);
  write_file(folder_ / "other", data);
  fs::rename(folder_ / "other", folder_ / shard_);
  const Outcome outcome = testing::finish_program(folder_.path(), child);
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  EXPECT_THAT(outcome.errors, HasSubstr("train-00000.bin was deleted or replaced while it was being read"));
  EXPECT_THAT(outcome.errors, HasSubstr("is saved in"));
  const int saved = newest();
  EXPECT_GE(saved, 3);
  // The file holds the same bytes: the run continues.
  std::vector<std::string> more = on_shards_;
  more.push_back("--training.steps=" + std::to_string(saved + 5));
  const Outcome next = train(more);
  EXPECT_EQ(next.status, 0) << next.errors;
  EXPECT_THAT(next.output, HasSubstr("step-" + std::to_string(saved)));
}

TEST_F(ResumeShards, AnIdOutsideTheVocabularyIsFoundAtTheStart) {
  std::string header(1024, '\0');
  const std::int32_t words[3] = {20240520, 1, 5000};
  std::memcpy(header.data(), words, sizeof words);
  std::vector<std::uint16_t> tokens(5000, 7);
  tokens[4321] = 300;
  write_file(folder_ / "ids.bin", header + std::string(reinterpret_cast<const char*>(tokens.data()), 10000));
  const Outcome outcome = train({"--data.train=[\"ids.bin\"]"});
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(outcome.errors, HasSubstr("ids.bin: token 4321 has id 300, outside the vocabulary of 260"));
  EXPECT_FALSE(fs::exists(folder_ / "run/metrics"));
}

TEST_F(ResumeShards, ADamagedShardIsFoundAtTheStartAndByInspect) {
  EXPECT_EQ(run_program(folder_.path(), {"inspect", "shards", "--verify"}).status, 0);
  std::string bytes = read_file(folder_ / shard_);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(folder_ / shard_, bytes);
  const Outcome outcome = train(on_shards_);
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(outcome.errors, HasSubstr("train-00000.bin: the tokens do not match their hash"));
  for (const std::string& path : {std::string("shards"), shard_}) {
    EXPECT_EQ(run_program(folder_.path(), {"inspect", path}).status, 0);
    const Outcome verified = run_program(folder_.path(), {"inspect", path, "--verify"});
    EXPECT_EQ(verified.status, 3);
    EXPECT_THAT(verified.errors, HasSubstr("train-00000.bin"));
  }
}

TEST_F(Resume, OtherTextUnderTheSameNameIsRefusedUnlessAllowed) {
  expect_trained();
  std::string text = read_file(folder_ / "text.txt");
  std::reverse(text.begin(), text.end());
  write_file(folder_ / "text.txt", text);
  const Outcome outcome = train({"--training.steps=25"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.errors, HasSubstr("data.train: text.txt of "));
  EXPECT_THAT(outcome.errors, HasSubstr("--checkpoint.allow_changes=data.train"));
  expect_trained({"--training.steps=25", "--checkpoint.allow_changes=data.train"});
}

}  // namespace
}  // namespace quench
