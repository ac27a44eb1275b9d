// The log file of a run folder, and the lines that show progress.

#include "train/metrics/run_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "tests/testing.h"
#include "tests/train/metrics/captured_log.h"
#include "train/metrics/progress_line.h"
#include "train/model_source/hub_hint.h"

namespace quench {
namespace {

using ::testing::AllOf;
using testing::CapturedLog;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_file;
using testing::TempDir;

// The console as a file.
class Console {
 public:
  explicit Console(std::filesystem::path path)
      : path_(std::move(path)), file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644)) {}
  ~Console() { ::close(file_); }
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  [[nodiscard]] int descriptor() const { return file_; }
  [[nodiscard]] std::string text() const { return read_file(path_); }

 private:
  std::filesystem::path path_;
  int file_;
};

TEST(RunLog, FileHoldsTextAndMessagesOfEveryStart) {
  const TempDir folder;
  const CapturedLog messages;
  const Console console(folder / "console.txt");
  for (const char* start : {"first", "second"}) {
    RunLog log(folder / "run/log.txt", console.descriptor());
    log.text(fmt::format("{} step\n", start));
    QUENCH_LOG_WARN("{} warning", start);
    QUENCH_LOG_DEBUG("{} detail", start);
    log.record("end\n");
  }
  QUENCH_LOG_WARN("after the run");
  EXPECT_EQ(console.text(), "first step\nsecond step\n");
  const std::string file = read_file(folder / "run/log.txt");
  EXPECT_THAT(file, AllOf(HasSubstr("first step\nwarning: first warning\nend\n---- "),
                          HasSubstr("second step\nwarning: second warning\nend\n")));
  EXPECT_THAT(file, AllOf(Not(HasSubstr("detail")), Not(HasSubstr("after the run"))));
  EXPECT_THAT(messages.text(), AllOf(HasSubstr("first warning"), HasSubstr("after the run")));
}

TEST(RunLog, AQuietConsoleLosesNothingOfTheFile) {
  const TempDir folder;
  const CapturedLog messages;
  const Console console(folder / "console.txt");
  set_log_level("error");
  RunLog log(folder / "log.txt", console.descriptor());
  log.text("step\n");
  QUENCH_LOG_INFO("saved");
  QUENCH_LOG_ERROR("broken");
  EXPECT_EQ(console.text(), "");
  EXPECT_THAT(messages.text(), AllOf(HasSubstr("broken"), Not(HasSubstr("saved"))));
  EXPECT_THAT(read_file(folder / "log.txt"), HasSubstr("step\ninfo: saved\nerror: broken\n"));
}

TEST(RunLog, WhatCannotBeWrittenCostsOneWarning) {
  const TempDir folder;
  testing::write_file(folder / "file", "");
  const CapturedLog messages;
  RunLog log(folder / "file/log.txt", 1 << 20);  // no descriptor
  for (int i = 0; i < 3; ++i) log.text("step\n");
  EXPECT_THAT(messages.text(), AllOf(HasSubstr("the run has no log file"), HasSubstr("no more console output")));
  EXPECT_EQ(messages.lines(), 2u);
}

TEST(ProgressLine, TextNamesShareSizeRateAndTimeLeft) {
  EXPECT_EQ(progress_text("tokenizing", 50'000'000, 200'000'000, 10),
            "tokenizing  25%  50 of 200 MB, 5.0 MB/s, 30 s left");
  EXPECT_EQ(progress_text("reading", 2'000'000, 0, 1), "reading  2 MB, 2.0 MB/s");
}

TEST(HubHint, NamesTheDownloadOfWhatLooksLikeAModel) {
  const std::string hint = hub_hint("meta-llama/Llama-3.2-1B");
  EXPECT_THAT(hint, HasSubstr("`quench pull hf:meta-llama/Llama-3.2-1B`"));
  for (const char* path : {"models", "/meta-llama/Llama", "./a/b", "a/b/c", "a/", "../a", "runs/x y", ""})
    EXPECT_EQ(hub_hint(path), "") << path;
  EXPECT_THAT(hub_data_hint("tatsu-lab/alpaca"),
              HasSubstr("`quench pull hf:datasets/tatsu-lab/alpaca`, then name it hf:datasets/tatsu-lab/alpaca"));
  for (const char* path : {"train.jsonl", "data/train.jsonl", "data/*.parquet", "/a/b"})
    EXPECT_EQ(hub_data_hint(path), "") << path;
  for (const std::string& absent : {hub_hint("hf:absent-owner/absent"), hub_data_hint("hf:absent-owner/absent")})
    EXPECT_THAT(absent, HasSubstr("not in the cache of the Hugging Face Hub: download it with `quench pull"));
}

}  // namespace
}  // namespace quench
