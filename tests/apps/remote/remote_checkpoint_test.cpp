// Runs that are killed during the upload of a checkpoint to S3-compatible storage, and lose their folder.

#include <gmock/gmock.h>
#include <signal.h>

#include <sstream>

#include "core/json/json.h"
#include "tests/apps/program.h"
#include "tests/s3_server/s3_environment.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::S3Environment;
using testing::S3Server;
using testing::TempDir;

class RemoteCheckpointRun : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 1; i <= 3000; ++i) text += fmt::format("line {} of the text\n", i * 37 % 101);
    testing::write_file(folder_ / "text.txt", text);
    testing::write_file(folder_ / "run.json", R"({
      "model": {"model_type": "llama", "vocab_size": 509, "hidden_size": 24, "intermediate_size": 37,
                "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                "max_position_embeddings": 64},
      "data": {"train": ["text.txt"], "tokenizer": "bytes", "seq_len": 16, "cache": "cache"},
      "training": {"steps": 24, "micro_batch_size": 1, "global_batch_size": 4, "dtype": "f32"},
      "checkpoint": {"interval": 4, "keep_latest": 0},
      "metrics": {"log_every": 1, "tensorboard": false}})");
  }
  std::vector<std::string> words(int ranks, const std::string& name, bool remote) const {
    std::vector<std::string> all;
    if (ranks > 1) all = {"run", "--standalone", "--nproc-per-node", std::to_string(ranks), "--max-restarts", "0"};
    for (const char* word : {"train", "run.json", "--device=cpu"}) all.emplace_back(word);
    all.push_back("--run.folder=" + name);
    if (remote) all.emplace_back("--checkpoint.remote=s3://models/demo");
    return all;
  }
  Outcome run(int ranks, const std::string& name, bool remote = true) const {
    return testing::run_program(folder_.path(), words(ranks, name, remote));
  }
  // "step:loss" of each step from `first` on, as written.
  std::vector<std::string> losses(const std::string& name, std::int64_t first) const {
    std::vector<std::string> found;
    std::istringstream lines(testing::read_file(folder_ / name / "metrics" / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const Json record = Json::parse(line);
      if (record.at("step").as_int() >= first)
        found.push_back(record.at("step").dump() + ":" + record.at("loss").dump());
    }
    return found;
  }
  // Starts a run, kills it while its second checkpoint arrives, and deletes its folder.
  void lose_in_upload(int ranks) {
    server_.set({.read_pause_ms = 4});
    const pid_t child = testing::start_program(folder_.path(), words(ranks, "run", true));
    const auto is_second_arriving = [&] {
      const std::vector<std::string> keys = server_.arriving();
      return server_.objects().contains("demo/step-4/manifest.json") && !keys.empty() &&
             keys.front().starts_with("demo/step-8/rank-");
    };
    for (int n = 0; n < 60'000 && !is_second_arriving(); ++n) ::usleep(500);
    ASSERT_TRUE(is_second_arriving());
    ::kill(child, SIGKILL);
    const Outcome killed = testing::finish_program(folder_.path(), child);
    ASSERT_EQ(killed.status, 128 + SIGKILL) << killed.errors << killed.output;
    for (int n = 0; n < 10'000 && !server_.arriving().empty(); ++n) ::usleep(1000);
    server_.set({});
    fs::remove_all(folder_ / "run");
  }
  void expect_resumption(int ranks) {
    const Outcome calm = run(ranks, "calm", false);
    ASSERT_EQ(calm.status, 0) << calm.errors << calm.output;
    lose_in_upload(ranks);
    const Outcome resumed = run(ranks, "run");
    ASSERT_EQ(resumed.status, 0) << resumed.errors << resumed.output;
    const std::size_t at = resumed.output.find("resumed from");
    ASSERT_NE(at, std::string::npos) << resumed.output;
    const std::string line = resumed.output.substr(at, resumed.output.find('\n', at) - at);
    const std::int64_t step = std::stoll(line.substr(line.find(": step ") + 7));
    EXPECT_EQ(step, 4);
    const auto rest = losses("run", step + 1);
    EXPECT_EQ(rest.size(), static_cast<std::size_t>(24 - step));
    EXPECT_EQ(rest, losses("calm", step + 1));
    EXPECT_EQ(server_.open_uploads(), 0u);
    int manifests = 0;
    for (const auto& [key, content] : server_.objects()) manifests += key.ends_with("/manifest.json");
    EXPECT_EQ(manifests, 6);
  }

  S3Server server_;
  S3Environment environment_{server_};
  TempDir folder_;
};

TEST_F(RemoteCheckpointRun, KilledInAnUploadContinuesFromTheStorage) {
  expect_resumption(1);
}

TEST_F(RemoteCheckpointRun, TwoShardedProcessesContinueFromTheStorage) {
  expect_resumption(2);
}

TEST_F(RemoteCheckpointRun, UploadsThatDoNotArriveEndTheRunWithAnError) {
  server_.set({.read_pause_ms = 50});
  std::vector<std::string> all = words(1, "run", true);
  all.emplace_back("--checkpoint.remote_wait=1");
  const Outcome late = testing::run_program(folder_.path(), all);
  EXPECT_NE(late.status, 0);
  EXPECT_THAT(late.errors, AllOf(HasSubstr("did not arrive in s3://models/demo within 1 s"), HasSubstr("step-24")));
  server_.set({});
  const Outcome again = run(1, "run");
  EXPECT_EQ(again.status, 0) << again.errors;
  EXPECT_TRUE(server_.objects().contains("demo/step-24/manifest.json"));
  for (const std::string& text : {late.errors, late.output, again.output, again.errors})
    EXPECT_THAT(text, AllOf(::testing::Not(HasSubstr(S3Server::kSecret)), ::testing::Not(HasSubstr(S3Server::kKeyId))));
}

TEST_F(RemoteCheckpointRun, FaultsAreUsageErrors) {
  for (const auto& [option, text] :
       std::vector<std::pair<std::string, std::string>>{{"--checkpoint.remote=s3:/x", "s3://BUCKET/PREFIX"},
                                                        {"--checkpoint.remote=s3://absent/x", "no such bucket"}}) {
    std::vector<std::string> all = words(1, "run", false);
    all.push_back(option);
    const Outcome refused = testing::run_program(folder_.path(), all);
    EXPECT_EQ(refused.status, 2) << refused.output;
    EXPECT_THAT(refused.errors, AllOf(HasSubstr("checkpoint.remote"), HasSubstr(text)));
    EXPECT_FALSE(fs::exists(folder_ / "run" / "checkpoints"));
  }
}

}  // namespace
}  // namespace quench
