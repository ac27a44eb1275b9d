// kill -9 of a process that saves all the time, at 200 random moments, restarting it each time.

#include <gtest/gtest.h>

#include <random>

#include "tests/fault/checkpoint_contents.h"
#include "tests/fault/process.h"
#include "train/checkpoint/checkpoint_list.h"

namespace quench {
namespace {

using testing::driver;
using testing::MemoryDir;
using testing::Process;

// The last number printed after `label`; -1 if none.
std::int64_t last_number(const std::string& output, const std::string& label) {
  const auto at = output.rfind(label);
  return at == std::string::npos ? -1 : std::atoll(output.c_str() + at + label.size());
}

TEST(CheckpointKillAtRandom, EveryRestartContinuesFromTheLastCompletedSave) {
  constexpr int kKills = 200;
  constexpr std::int64_t kEnd = 1'000'000;
  constexpr std::int64_t kBulk = 1 << 20;
  const MemoryDir dir;
  const testing::StepTensors tensors(kBulk);
  std::mt19937 random(7);
  std::int64_t completed = 0;
  int partial = 0;  // kills that left a half written save after
  for (int kill = 0; kill < kKills; ++kill) {
    const std::vector<std::string> options = {"keep=2", "pause=1000", fmt::format("bulk={}", kBulk),
                                              kill % 2 == 0 ? "async" : "sync"};
    Process trainer(driver(dir.path(), kEnd, options));
    ASSERT_TRUE(trainer.wait_for("resumed ")) << trainer.wait().output;
    ::usleep(std::uniform_int_distribution<unsigned>(0, 15'000)(random));
    trainer.kill();
    const auto run = trainer.wait();
    ASSERT_EQ(run.signal, SIGKILL) << run.output;  // it never refuses to start nor finds mixed content
    const std::int64_t resumed = last_number(run.output, "resumed ");
    ASSERT_GE(resumed, completed) << run.output;
    completed = std::max(resumed, last_number(run.output, "saved "));

    for (const auto& entry : std::filesystem::directory_iterator(dir.path()))
      partial += entry.path().filename().string().find(".tmp-") != std::string::npos;
    const CheckpointListing listing = list_checkpoints(dir.path());
    for (const CheckpointInfo& info : listing.checkpoints) ASSERT_TRUE(info.valid) << info.fault;
    const std::int64_t newest = listing.checkpoints.empty() ? 0 : listing.checkpoints.front().step;
    ASSERT_GE(newest, completed);
    if (newest == 0) continue;
    CheckpointReader reader(listing.checkpoints.front().path);
    ASSERT_EQ(tensors.difference(reader), "");
  }
  EXPECT_GT(completed, 0);
  EXPECT_GT(partial, 0);
}

}  // namespace
}  // namespace quench
