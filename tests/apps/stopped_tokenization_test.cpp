// Tokenization that is stopped, and continues when the same command is given again.

#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "tests/apps/run_project.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::read_file;

class StoppedTokenization : public testing::RunProject {
 protected:
  void SetUp() override {
    RunProject::SetUp();
    const std::string line = Json(Json::Object{{"text", read_file(work() / "corpus.txt")}}).dump() + "\n";
    std::string text;
    while (text.size() < kTextBytes) text += line;
    testing::write_file(work() / "long.jsonl", text);
  }

  // The journals in a folder.
  static std::vector<fs::path> journals(const fs::path& folder) {
    std::vector<fs::path> found;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored))
      if (entry.path().extension() == ".journal") found.push_back(entry.path());
    return found;
  }
  static std::uintmax_t journal_bytes(const fs::path& folder) {
    std::uintmax_t bytes = 0;
    for (const fs::path& path : journals(folder)) {
      std::error_code gone;
      const std::uintmax_t size = fs::file_size(path, gone);
      bytes += gone ? 0 : size;
    }
    return bytes;
  }
  // Starts a command and sends it a signal when a further batch is kept in a journal of the folder.
  Outcome stop_by(int signal, const std::vector<std::string>& arguments, const fs::path& folder) const {
    const std::uintmax_t before = journal_bytes(folder);
    const pid_t child = testing::start_program(work(), arguments);
    const auto kept = [&] { return journal_bytes(folder) > before + 1000; };
    siginfo_t ended{};  // looked at, not reaped
    while (!kept() && ended.si_pid == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT), 0);
    }
    ::kill(child, signal);
    return testing::finish_program(work(), child);
  }
  void expect_no_temporaries(const fs::path& folder) const {
    for (const auto& entry : fs::directory_iterator(folder))
      EXPECT_THAT(entry.path().string(), Not(HasSubstr(".tmp-")));
  }

  static constexpr std::size_t kTextBytes = std::size_t{80} << 20;  // batches have 16 MiB
};

// A row above the limit is skipped, however long it is: a sparse file of 16 GB here.
TEST_F(StoppedTokenization, ASignalEndsTheReadingOfOneRecord) {
  testing::write_file(work() / "row.csv", "text\n\"");
  fs::resize_file(work() / "row.csv", std::uintmax_t{16} << 30);
  const pid_t child =
      testing::start_program(work(), {"tokenize", "--tokenizer", "bytes", "--input", "row.csv", "--output", "out"});
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const auto asked = std::chrono::steady_clock::now();
  ::kill(child, SIGTERM);
  const Outcome outcome = testing::finish_program(work(), child);
  EXPECT_EQ(outcome.status, 128 + SIGTERM) << outcome.errors;
  EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::seconds(10));
  EXPECT_THAT(outcome.errors, HasSubstr("stopped by SIGTERM: tokenization stopped after 0.0 "));
}

TEST_F(StoppedTokenization, RunsAndTheVerbGoOnWhereTheyStopped) {
  const std::vector<std::string> train = {"train", "run.json", "--data.train=long.jsonl", "--training.threads=1",
                                          "--training.steps=2"};
  const fs::path cache = work() / "run/cache";
  Outcome outcome = stop_by(SIGTERM, train, cache);
  EXPECT_EQ(outcome.status, 128 + SIGTERM) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("stopped by SIGTERM: tokenization stopped after "));
  EXPECT_THAT(outcome.errors, HasSubstr(" MB of text; the same command resumes there"));
  EXPECT_THAT(outcome.errors, Not(HasSubstr("error:")));
  EXPECT_THAT(read_file(work() / "run/log.txt"), HasSubstr("tokenization stopped after "));
  expect_no_temporaries(cache);
  EXPECT_EQ(stop_by(SIGKILL, train, cache).status, 128 + SIGKILL);
  outcome = run(train);
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("tokenization resumes after "));
  EXPECT_TRUE(journals(cache).empty());
  expect_no_temporaries(cache);

  const std::vector<std::string> tokenize = {"tokenize", "--tokenizer", "tokenizer", "--input", "long.jsonl",
                                             "--output", "long/",       "--threads", "1"};
  outcome = stop_by(SIGINT, tokenize, work());
  EXPECT_EQ(outcome.status, 128 + SIGINT) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("the same command resumes there"));
  EXPECT_EQ(stop_by(SIGTERM, tokenize, work()).status, 128 + SIGTERM);
  EXPECT_TRUE(fs::exists(work() / "long.journal"));
  EXPECT_FALSE(fs::exists(work() / "long"));
  expect_no_temporaries(work());
  outcome = run(tokenize);
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("tokenization resumes after "));
  EXPECT_TRUE(journals(work()).empty());

  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(cache))
    if (entry.is_directory()) entries.push_back(entry.path());
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_TRUE(read_file(work() / "long/train-00000.bin") == read_file(entries[0] / "train-00000.bin"));
}

}  // namespace
}  // namespace quench
