// Saves under failing, interrupted, short and fatal file-system calls. Whatever happens, the folder holds either the
// checkpoint from before or the new one, whole.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/fault/checkpoint_contents.h"
#include "tests/fault/process.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/checkpoint/checkpoint_save.h"
#include "train/checkpoint/checkpoint_writer.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using testing::driver;
using ::testing::ElementsAre;
using testing::Finished;
using ::testing::HasSubstr;
using testing::MemoryDir;
using testing::Process;
using testing::StepTensors;

constexpr int kMostCalls = 400;  // a save makes about 60

// A folder with steps 1 and 2, in which a driver saves step 3 with faults and deletes step 1.
class CheckpointFault : public ::testing::Test {
 protected:
  CheckpointFault() {
    for (const std::int64_t step : {1, 2}) save_checkpoint(base_.path(), tensors_.state(step), tensors_.at(step));
  }

  // A fresh copy of the two checkpoints.
  fs::path fresh() {
    const fs::path folder = runs_ / std::to_string(runs_made_++);
    fs::copy(base_.path(), folder, fs::copy_options::recursive);
    return folder;
  }

  // The step that a restarted trainer would continue from; fails the test unless that checkpoint is whole.
  std::int64_t restart_from(const fs::path& folder) {
    std::string difference;
    const auto loaded =
        load_latest(folder, [&](CheckpointReader& reader) { difference = tensors_.difference(reader); });
    EXPECT_EQ(difference, "") << folder;
    return loaded ? loaded->step : 0;
  }

  static std::set<std::string> names(const fs::path& folder) {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().filename() != ".lock" && entry.path().filename() != "LATEST")
        found.insert(entry.path().filename().string());
    return found;
  }

  // After any interruption the next trainer starts, removes what was left, and saves.
  void expect_usable_afterwards(const fs::path& folder) {
    const std::int64_t step = restart_from(folder) + 1;
    {
      const RunLock lock(folder);
      CheckpointOptions options;
      options.keep_latest = 2;
      CheckpointWriter writer(folder, lock, options);
      writer.save(tensors_.state(step), tensors_.at(step));
      writer.finish();
    }
    EXPECT_EQ(names(folder), (std::set{step_name(step - 1), step_name(step)}));
    for (const std::string& name : names(folder)) EXPECT_TRUE(verify_checkpoint(folder / name).ok()) << name;
  }

  MemoryDir base_;
  MemoryDir runs_;
  int runs_made_ = 0;
  StepTensors tensors_;
};

// Runs the save of step 3 once for each of its file-system calls, with `fault` at that call, until a run is not hit.
template <class Check>
int sweep(const std::function<fs::path()>& fresh, const std::string& fault, const std::vector<std::string>& options,
          const Check& check) {
  for (int call = 1; call < kMostCalls; ++call) {
    const fs::path folder = fresh();
    const Finished run = Process(driver(folder, 3, options), fault + ";wait;at=" + std::to_string(call)).wait();
    if (::testing::Test::HasFailure()) return call;
    const auto counted = run.output.rfind("calls ");
    if (counted != std::string::npos && std::atoi(run.output.c_str() + counted + 6) < call) {
      EXPECT_GT(call, 5) << "too few calls were counted for this to test anything";
      return call - 1;
    }
    check(folder, run, call);
    fs::remove_all(folder);
  }
  ADD_FAILURE() << "the save did not end within " << kMostCalls << " calls";
  return kMostCalls;
}

class CheckpointKill : public CheckpointFault, public ::testing::WithParamInterface<const char*> {};

TEST_P(CheckpointKill, AtEachCallLeavesTheOldOrTheNewCheckpoint) {
  std::vector<std::int64_t> resumed;
  const int calls = sweep([&] { return fresh(); }, GetParam(), {"keep=2"},
                          [&](const fs::path& folder, const Finished& run, int call) {
                            ASSERT_EQ(run.signal, SIGKILL) << "call " << call << "\n" << run.output;
                            resumed.push_back(restart_from(folder));
                            expect_usable_afterwards(folder);
                          });
  EXPECT_GT(calls, 30);
  // Old checkpoints up to the rename, the new one after it, and never back.
  EXPECT_TRUE(std::is_sorted(resumed.begin(), resumed.end()));
  EXPECT_EQ(resumed.front(), 2);
  EXPECT_EQ(resumed.back(), 3);
}

INSTANTIATE_TEST_SUITE_P(Between, CheckpointKill, ::testing::Values("do=kill"));
INSTANTIATE_TEST_SUITE_P(WithinAWrite, CheckpointKill, ::testing::Values("do=tear"));

TEST_F(CheckpointFault, KillWhileAStepIsReplacedKeepsOneOfThem) {
  sweep([&] { return fresh(); }, "do=kill", {"again=2"},
        [&](const fs::path& folder, const Finished& run, int call) {
          ASSERT_EQ(run.signal, SIGKILL) << call;
          EXPECT_GE(restart_from(folder), 2) << call;
        });
}

// Step 3 is saved, or reported as failed with everything else as it was.
void expect_all_or_nothing(const Finished& run, std::int64_t resumed, const std::set<std::string>& names, int call) {
  if (run.status == 0) {
    EXPECT_EQ(resumed, 3) << "call " << call << "\n" << run.output;
    return;
  }
  ASSERT_EQ(run.status, 1) << "call " << call << " signal " << run.signal << "\n" << run.output;
  EXPECT_TRUE(run.printed("error ")) << run.output;
  EXPECT_TRUE(names.contains("step-1") && names.contains("step-2")) << call;
  if (resumed == 2) {
    EXPECT_EQ(names, (std::set<std::string>{"step-1", "step-2"})) << "call " << call << "\n" << run.output;
  }
}

TEST_F(CheckpointFault, OneFailingCallIsSurvivedOrReported) {
  for (const std::string error : {"ENOSPC", "EIO"}) {
    int failed = 0;
    sweep([&] { return fresh(); }, "do=" + error, {"keep=2"},
          [&](const fs::path& folder, const Finished& run, int call) {
            const std::int64_t resumed = restart_from(folder);
            failed += run.status != 0;
            // Removing the temporary folder may be what failed.
            std::set<std::string> left = names(folder);
            std::erase_if(left, [](const std::string& name) { return name.find(".tmp-") != std::string::npos; });
            expect_all_or_nothing(run, resumed, left, call);
            EXPECT_TRUE(run.status == 0 || run.printed(folder.string())) << run.output;
            expect_usable_afterwards(folder);
          });
    if (error == "ENOSPC") {
      EXPECT_GT(failed, 10);  // not tried again
    } else {
      EXPECT_LT(failed, 5);  // tried again: only after the rename is it too late
    }
  }
}

TEST_F(CheckpointFault, AFullDiskFromSomeCallOnIsReportedAndCleanedUp) {
  sweep([&] { return fresh(); }, "do=ENOSPC;sticky;ops=create,mkdir,write,fsync,fallocate,truncate,close,rename",
        {"keep=2"},
        [&](const fs::path& folder, const Finished& run, int call) {
          expect_all_or_nothing(run, restart_from(folder), names(folder), call);
          EXPECT_TRUE(run.status == 0 || run.printed("error no space left:")) << call << run.output;
        });
}

TEST_F(CheckpointFault, ABrokenDiskFromSomeCallOnIsReported) {
  int failed = 0;
  sweep([&] { return fresh(); }, "do=EIO;sticky;ops=write,fsync,fallocate,truncate,close,rename", {"keep=2"},
        [&](const fs::path& folder, const Finished& run, int call) {
          expect_all_or_nothing(run, restart_from(folder), names(folder), call);
          failed += run.status != 0;
          EXPECT_TRUE(run.status == 0 || run.printed("Input/output error")) << run.output;
        });
  EXPECT_GT(failed, 10);
}

TEST_F(CheckpointFault, InterruptedAndShortCallsAreCompleted) {
  for (const std::string action :
       {"do=EINTR;ops=create,open,write,fsync,fallocate,truncate,close", "do=short;ops=write"})
    sweep([&] { return fresh(); }, action, {"keep=2"},
          [&](const fs::path& folder, const Finished& run, int call) {
            ASSERT_EQ(run.status, 0) << action << " call " << call << "\n" << run.output;
            EXPECT_FALSE(run.printed("is retried once")) << run.output;
            EXPECT_EQ(restart_from(folder), 3);
            EXPECT_TRUE(verify_checkpoint(folder / "step-3").ok());
          });
}

TEST_F(CheckpointFault, EveryShortWriteAtOnce) {
  const fs::path folder = runs_ / "large";
  const Finished run = Process(driver(folder, 3, {"bulk=1000000"}), "do=short;ops=write;wait").wait();
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_TRUE(verify_checkpoint(folder / "step-3").ok());
}

TEST_F(CheckpointFault, FileSystemWithoutFallocateIsWrittenDirectly) {
  for (const char* error : {"EOPNOTSUPP", "EINVAL"}) {
    const fs::path folder = fresh();
    const Finished run = Process(driver(folder, 3), fmt::format("do={};ops=fallocate", error)).wait();
    EXPECT_EQ(run.status, 0) << run.output;
    EXPECT_EQ(restart_from(folder), 3);
  }
}

TEST_F(CheckpointFault, FullDiskMessageStatesBytesAndPath) {
  const fs::path folder = fresh();
  const Finished reserve = Process(driver(folder, 3), "do=ENOSPC;ops=fallocate;wait").wait();
  EXPECT_EQ(reserve.status, 1);
  EXPECT_THAT(reserve.output,
              ::testing::ContainsRegex("error no space left: cannot reserve [0-9]+ bytes for "
                                       ".*/step-3.tmp-.*/rank-00000.safetensors.*[0-9]+ bytes are free"));
  const Finished write = Process(driver(folder, 3), "do=ENOSPC;ops=write;path=rank-00000;at=3;wait").wait();
  EXPECT_EQ(write.status, 1);
  EXPECT_THAT(
      write.output,
      ::testing::ContainsRegex(
          "error no space left: cannot write .*rank-00000.safetensors: .* after [0-9]+ bytes, [0-9]+ more were due"));
  EXPECT_EQ(names(folder), (std::set<std::string>{"step-1", "step-2"}));
}

TEST_F(CheckpointFault, TooLittleSpaceIsFoundBeforeWriting) {
  StepTensors huge(64);
  std::vector<CheckpointTensor> tensors = huge.at(3);
  // Only sizes are looked at before the space: no byte of this tensor exists.
  const std::int64_t size = std::int64_t{1} << 46;
  tensors.push_back(CheckpointTensor::whole("huge", Tensor::from_host(nullptr, {size}, DType::u8)));
  const fs::path folder = fresh();
  try {
    save_checkpoint(folder, huge.state(3), tensors);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::no_space);
    EXPECT_THAT(error.what(),
                ::testing::ContainsRegex("the checkpoint of step 3 needs 7388[0-9]+ bytes in .* [0-9]+ are free"));
  }
  EXPECT_EQ(names(folder), (std::set<std::string>{"step-1", "step-2"}));
}

TEST_F(CheckpointFault, ExchangeNotSupportedStillReplaces) {
  for (const char* error : {"EINVAL", "ENOSYS"}) {
    const fs::path folder = fresh();
    const Finished run = Process(driver(folder, 2, {"again=2"}), fmt::format("do={};ops=exchange", error)).wait();
    EXPECT_EQ(run.status, 0) << run.output;
    EXPECT_EQ(restart_from(folder), 2);
    EXPECT_EQ(names(folder), (std::set<std::string>{"step-1", "step-2"}));
  }
}

TEST_F(CheckpointFault, DeletionThatFailsIsAWarningAndTriedAgain) {
  for (const char* fault : {"do=EBUSY;ops=rename;path=/step-1;wait", "do=EACCES;ops=unlink;path=.trash;wait"}) {
    const fs::path folder = fresh();
    const Finished run = Process(driver(folder, 4, {"keep=2"}), fault).wait();
    EXPECT_EQ(run.status, 0) << run.output;
    EXPECT_THAT(run.output, HasSubstr("saved 4"));
    EXPECT_THAT(run.output, HasSubstr("tried again"));
    EXPECT_EQ(restart_from(folder), 4);
    const Finished next = Process(driver(folder, 5, {"keep=2"})).wait();
    EXPECT_EQ(next.status, 0) << next.output;
    EXPECT_EQ(names(folder), (std::set<std::string>{"step-4", "step-5"}));
  }
}

TEST_F(CheckpointFault, UnusableFolderIsFoundAtStart) {
  for (const std::string fault : {"do=EROFS;ops=mkdir", "do=EACCES;ops=create;path=probe", "do=EIO;ops=fsync",
                                  "do=EXDEV;ops=rename", "do=ENOSPC;ops=write;path=probe"}) {
    const fs::path folder = fresh();
    const Finished run = Process(driver(folder, 3), fault).wait();
    EXPECT_EQ(run.status, 1) << fault;
    EXPECT_FALSE(run.printed("saved")) << fault << run.output;
    EXPECT_THAT(run.output, HasSubstr("cannot be used"));
    EXPECT_THAT(run.output, HasSubstr("set checkpoint.folder to"));
    EXPECT_EQ(names(folder), (std::set<std::string>{"step-1", "step-2"})) << fault;
  }
}

TEST_F(CheckpointFault, SlowDiskMakesTheNextSaveWait) {
  const fs::path folder = fresh();
  const Finished run = Process(driver(folder, 4, {"async"}), "do=delay;ms=30;ops=write;wait").wait();
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("saving step 4 waits for the save of step 3"));
  for (const char* name : {"step-3", "step-4"}) {
    CheckpointReader reader(folder / name);
    EXPECT_EQ(tensors_.difference(reader), "");  // the driver overwrites its tensors right after save()
  }
}

TEST_F(CheckpointFault, BackgroundErrorEndsTheRunUnlessToldToGoOn) {
  const std::string broken_step_3 = "do=EIO;ops=write;path=step-3.tmp;wait";
  fs::path folder = fresh();
  const Finished stop = Process(driver(folder, 8, {"async", "pause=20000"}), broken_step_3).wait();
  EXPECT_EQ(stop.status, 1);
  EXPECT_THAT(stop.output, HasSubstr("error input/output error: cannot write"));
  EXPECT_THAT(stop.output, HasSubstr("is retried once"));
  EXPECT_LE(restart_from(folder), 4);  // surfaced at the next step
  folder = fresh();
  const Finished go_on = Process(driver(folder, 8, {"async", "keep-going", "keep=2"}), broken_step_3).wait();
  EXPECT_EQ(go_on.status, 1);
  EXPECT_THAT(go_on.output, HasSubstr("1 of 6 checkpoints could not be saved; the first: cannot write"));
  EXPECT_EQ(restart_from(folder), 8);
}

// A file system of one mebibyte: writing through a mapping would die of SIGBUS here.
TEST_F(CheckpointFault, ReallyFullFileSystem) {
  const fs::path folder = runs_ / "small";
  fs::create_directory(folder);
  if (std::system(("mount -t tmpfs -o size=1m none " + folder.string() + " 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << "mounting is not allowed here";
  const Finished first = Process(driver(folder, 1, {"bulk=300000"})).wait();
  const Finished second = Process(driver(folder, 9, {"bulk=300000", "keep=9"})).wait();
  const std::set<std::string> left = names(folder);
  std::string damaged;
  for (const std::string& name : left)
    if (!verify_checkpoint(folder / name).ok()) damaged += name;
  EXPECT_EQ(std::system(("umount " + folder.string()).c_str()), 0);
  EXPECT_EQ(first.status, 0) << first.output;
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.output, HasSubstr("error no space left: the checkpoint of step 4 needs"));
  EXPECT_EQ(left, (std::set<std::string>{"step-1", "step-2", "step-3"}));
  EXPECT_EQ(damaged, "");
}

}  // namespace
}  // namespace quench
