// An export that is killed, or runs out of disk, at any of its file-system calls: nothing or a complete folder.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>
#include <map>

#include "tests/fault/process.h"
#include "tests/testing.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using ::testing::HasSubstr;
using testing::Process;

class ExportFaultSlow : public ::testing::TestWithParam<std::vector<std::string>> {
 protected:
  Finished quantize(const fs::path& output, const std::string& fault) {
    std::vector<std::string> command{testing::program_path(),
                                     "quantize",
                                     "--model",
                                     (testing::golden_dir() / "models/llama").string(),
                                     "--output",
                                     output.string(),
                                     "--max-shard-gb",
                                     "0.0001"};
    command.insert(command.end(), GetParam().begin(), GetParam().end());
    return Process(command, fault).wait();
  }

  // Every file with its bytes, but the model card, which names the folder.
  static std::map<std::string, std::string> files_of(const fs::path& folder) {
    std::map<std::string, std::string> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
      if (const std::string name = entry.path().filename().string(); name != "README.md")
        files[name] = testing::read_file(entry.path());
    return files;
  }

  // Runs with a fault at every `step`-th call on the output until a run has no such call; returns how many had.
  int sweep(const std::string& action, int step, const std::function<void(const Finished&, const fs::path&)>& check) {
    int faults = 0;
    for (int at = 1; at < 2000; at += step) {
      SCOPED_TRACE(fmt::format("{} at call {}", action, at));
      const testing::TempDir folder;
      const fs::path output = folder / "out";
      const Finished run = quantize(output, fmt::format("do={};at={};path={}", action, at, folder.path().string()));
      if (run.status == 0) {
        EXPECT_EQ(files_of(output), files_of(whole_ / "out"));
        return faults;
      }
      ++faults;
      check(run, output);
      if (HasFatalFailure()) return faults;
      // Leftovers of an earlier export do not disturb the next one.
      if (faults % 8 == 0) {
        EXPECT_EQ(quantize(output, "").status, 0);
        EXPECT_EQ(files_of(output), files_of(whole_ / "out"));
      }
    }
    ADD_FAILURE() << "the export makes no end of calls";
    return faults;
  }

  void SetUp() override { ASSERT_EQ(quantize(whole_ / "out", "").status, 0); }

  testing::TempDir whole_;
};

TEST_P(ExportFaultSlow, AKillLeavesNothingOrTheWhole) {
  const int kills = sweep("kill", 3, [&](const Finished& run, const fs::path& output) {
    ASSERT_EQ(run.signal, SIGKILL) << run.output;
    if (fs::exists(output)) {
      EXPECT_EQ(files_of(output), files_of(whole_ / "out"));
    }
  });
  EXPECT_GT(kills, 10);
}

TEST_P(ExportFaultSlow, AFullDiskIsNamedAndLeavesNothing) {
  const int faults = sweep("ENOSPC;sticky;ops=create,mkdir,write,fallocate,truncate", 4,
                           [&](const Finished& run, const fs::path& output) {
                             EXPECT_EQ(run.status, 1) << run.output;
                             EXPECT_THAT(run.output, HasSubstr("No space left on device"));
                             EXPECT_FALSE(fs::exists(output));
                             for (const fs::directory_entry& entry : fs::directory_iterator(output.parent_path()))
                               ADD_FAILURE() << entry.path() << " was left behind";
                           });
  EXPECT_GT(faults, 5);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, ExportFaultSlow,
    ::testing::Values(std::vector<std::string>{"--scheme", "int4_weight_only_g32"},
                      std::vector<std::string>{"--scheme", "int4_weight_only_g32", "--format", "gguf"},
                      std::vector<std::string>{"--scheme", "int8_weight_only", "--format", "torchao"}));

}  // namespace
}  // namespace quench
