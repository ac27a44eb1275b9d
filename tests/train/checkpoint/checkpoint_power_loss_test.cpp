// Power cuts at every moment of several saves, with every kind of loss of what had not been synced.

#include <gtest/gtest.h>

#include "tests/fault/checkpoint_contents.h"
#include "tests/fault/process.h"
#include "tests/fault/trace.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/checkpoint/checkpoint_save.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using testing::driver;
using testing::MemoryDir;
using testing::Process;

class CheckpointPowerLoss : public ::testing::Test {
 protected:
  // Records a driver that continues from step 2, then cuts the power `cuts` times after each of its calls.
  void run(int last, const std::vector<std::string>& options, int cuts) {
    const fs::path folder = dir_ / "run";
    for (const std::int64_t step : {1, 2}) save_checkpoint(folder, tensors_.state(step), tensors_.at(step));
    testing::SimulatedDisk disk(folder);
    const auto finished = Process(driver(folder, last, options), "do=none;wait", dir_ / "trace").wait();
    ASSERT_EQ(finished.status, 0) << finished.output;
    const auto trace = testing::read_trace(dir_ / "trace");
    ASSERT_GT(trace.size(), 40u);

    std::int64_t renamed = 2;
    std::mt19937 random(3);
    for (std::size_t i = 0; i < trace.size(); ++i) {
      disk.apply(trace[i]);
      const fs::path to = trace[i].path_to;
      if (const auto step = parse_step_name(to.filename().string())) renamed = *step;
      if (to.filename() == "LATEST") promised_ = renamed;  // written once the step is safe
      for (int cut = 0; cut < cuts; ++cut) {
        const double probability = cut == 0 ? 0.0 : cut == 1 ? 1.0 : 0.5;
        disk.crash(dir_ / "crashed", probability, random);
        expect_resumable(fmt::format("after {} {} (call {} of {})", trace[i].op, trace[i].path, i, trace.size()));
        fs::remove_all(dir_ / "crashed");
        if (HasFailure()) return;
      }
    }
    EXPECT_EQ(promised_, last);
  }

  void expect_resumable(const std::string& moment) {
    std::string difference;
    const auto loaded =
        load_latest(dir_ / "crashed", [&](CheckpointReader& reader) { difference = tensors_.difference(reader); });
    ASSERT_TRUE(loaded) << moment;
    EXPECT_EQ(difference, "") << moment;
    EXPECT_GE(loaded->step, promised_) << moment;
    const CheckpointListing listing = list_checkpoints(dir_ / "crashed");
    for (const CheckpointInfo& info : listing.checkpoints) EXPECT_TRUE(info.valid) << moment << ": " << info.fault;
    EXPECT_TRUE(listing.ignored.empty()) << moment << ": " << listing.ignored.front().name;
  }

  MemoryDir dir_;
  testing::StepTensors tensors_;
  std::int64_t promised_ = 2;
};

TEST_F(CheckpointPowerLoss, NothingThatWasReportedSavedIsLost) {
  run(5, {"keep=2"}, 20);
}

TEST_F(CheckpointPowerLoss, KeepingOnlyOneCheckpoint) {
  run(4, {"keep=1"}, 20);
}

TEST_F(CheckpointPowerLoss, WhileAStepIsReplaced) {
  run(3, {"again=3", "keep=2"}, 20);
}

}  // namespace
}  // namespace quench
