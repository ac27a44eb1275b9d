// One metrics.folder, several runs: no record is lost.

#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "tests/apps/program.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::read_file;
using testing::write_file;

class MetricsFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "the cat sees a small house and the river " + std::to_string(i) + ".\n";
    write_file(folder_ / "corpus.txt", text);
    write_file(folder_ / "run.json", R"({"model": {"preset": "tiny", "vocab_size": 260},
      "data": {"train": ["corpus.txt"], "tokenizer": "bytes", "seq_len": 16},
      "training": {"steps": 2, "micro_batch_size": 2, "dtype": "f32"}, "metrics": {"tensorboard": false}})");
  }

  Outcome run(const std::vector<std::string>& arguments) { return testing::run_program(folder_.path(), arguments); }

  testing::TempDir folder_;
};

TEST_F(MetricsFolder, TwoRunsDoNotWriteOneMetricsFolder) {
  const auto train = [](const std::string& name) {
    return std::vector<std::string>{"train", "run.json", "--run.folder=" + name, "--metrics.folder=m",
                                    "--training.steps=100000"};
  };
  const pid_t first = testing::start_program(folder_.path(), train("long"));
  while (!fs::exists(folder_ / "m" / "metrics.jsonl")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  // Its output files are those of the first: another folder to start in.
  fs::create_directory(folder_ / "second");
  std::vector<std::string> second = train("other");
  second[1] = (folder_ / "run.json").string();
  second[2] = "--run.folder=" + (folder_ / "other").string();
  second[3] = "--metrics.folder=" + (folder_ / "m").string();
  second.push_back("--data.train=" + (folder_ / "corpus.txt").string());
  const Outcome refused = testing::run_program(folder_ / "second", second);
  EXPECT_EQ(refused.status, 4);
  EXPECT_THAT(refused.errors,
              AllOf(HasSubstr("metrics folder"), HasSubstr("/m is locked by process"), HasSubstr("another folder")));
  ::kill(first, SIGTERM);
  EXPECT_EQ(testing::finish_program(folder_.path(), first).status, 128 + SIGTERM);
}

TEST_F(MetricsFolder, AResumedRunDoesNotRewriteTheRecordsOfAnother) {
  const auto train = [&](const std::string& name, int steps, const std::string& metrics) {
    return run({"train", "run.json", "--run.folder=" + name, "--training.steps=" + std::to_string(steps),
                "--metrics.folder=" + metrics});
  };
  const auto expect_kept = [&](const Outcome& outcome, const std::string& whose, const std::string& folder,
                               const std::string& records) {
    EXPECT_EQ(outcome.status, 2) << outcome.errors;
    EXPECT_THAT(outcome.errors, AllOf(HasSubstr("metrics.folder: " + folder + " holds records of " + whose),
                                      HasSubstr("choose another")));
    EXPECT_EQ(read_file(folder_ / folder / "metrics.jsonl"), records);
  };
  // A stranger's.
  ASSERT_EQ(train("run", 2, "own").status, 0);
  fs::create_directory(folder_ / "theirs");
  write_file(folder_ / "theirs/metrics.jsonl", "{\"step\": 7}\nnotes\n");
  expect_kept(train("run", 4, "theirs"), "no known run", "theirs", "{\"step\": 7}\nnotes\n");
  // Another run's, which keeps its own.
  EXPECT_EQ(train("a", 2, "shared").status, 0);
  EXPECT_EQ(train("b", 2, "shared").status, 0);
  const std::string records = read_file(folder_ / "shared/metrics.jsonl");
  expect_kept(train("a", 4, "shared"), (fs::canonical(folder_.path()) / "b").string(), "shared", records);
  EXPECT_EQ(train("b", 4, "shared").status, 0);
  EXPECT_THAT(read_file(folder_ / "shared/metrics.jsonl"), ::testing::StartsWith(records));
}

}  // namespace
}  // namespace quench
