#include "train/checkpoint/checkpoint_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/memory/allocator.h"
#include "tests/fault/checkpoint_contents.h"
#include "tests/fault/process.h"
#include "tests/testing.h"
#include "train/checkpoint/checkpoint_list.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::StepTensors;
using testing::TempDir;

class CheckpointWriterTest : public ::testing::Test {
 protected:
  std::unique_ptr<CheckpointWriter> writer(bool async, int keep_latest = 3, OnSaveError on_error = OnSaveError::stop) {
    CheckpointOptions options;
    options.async = async;
    options.keep_latest = keep_latest;
    options.on_error = on_error;
    return std::make_unique<CheckpointWriter>(dir_ / "checkpoints", lock_, options);
  }

  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> found;
    for (const CheckpointInfo& info : list_checkpoints(dir_ / "checkpoints").checkpoints) {
      EXPECT_TRUE(info.valid) << info.fault;
      found.push_back(info.step);
    }
    return found;
  }

  TempDir dir_;
  RunLock lock_{dir_.path()};
  StepTensors tensors_{1 << 20};
};

class CheckpointWriterModes : public CheckpointWriterTest, public ::testing::WithParamInterface<bool> {};

TEST_P(CheckpointWriterModes, SavesWhatTheTensorsHeldAtTheCall) {
  const auto checkpoints = writer(GetParam());
  std::vector<std::int64_t> reported;
  const auto collect = [&](const std::vector<SaveReport>& reports) {
    for (const SaveReport& report : reports) {
      reported.push_back(report.step);
      EXPECT_EQ(report.path, checkpoints->folder() / step_name(report.step));
      EXPECT_GT(report.bytes, std::uint64_t{1} << 20);
      EXPECT_GE(report.stall_seconds, 0);
    }
  };
  for (const std::int64_t step : {1, 2, 3, 4}) {
    checkpoints->save(tensors_.state(step), tensors_.at(step));
    tensors_.at(1000 + step);  // training continues at once
    collect(checkpoints->poll());
  }
  collect(checkpoints->finish());
  EXPECT_THAT(reported, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(steps(), ElementsAre(4, 3, 2));
  for (const std::int64_t step : steps()) {
    CheckpointReader reader(checkpoints->folder() / step_name(step));
    EXPECT_EQ(tensors_.difference(reader), "");
  }
  EXPECT_EQ(testing::read_file(checkpoints->folder() / "LATEST"), "step-4\n");
}

TEST_P(CheckpointWriterModes, DestructorCompletesTheLastSave) {
  writer(GetParam())->save(tensors_.state(5), tensors_.at(5));
  EXPECT_THAT(steps(), ElementsAre(5));
}

INSTANTIATE_TEST_SUITE_P(Async, CheckpointWriterModes, ::testing::Bool());

TEST_F(CheckpointWriterTest, StagingIsReusedAndAnnounced) {
  const auto checkpoints = writer(true);
  EXPECT_EQ(checkpoints->staging_bytes(), 0);
  checkpoints->save(tensors_.state(1), tensors_.at(1));
  checkpoints->finish();
  EXPECT_EQ(checkpoints->staging_bytes(), snapshot_bytes(tensors_.at(1)));
  const auto current = Allocator::of({}).stats().current;
  checkpoints->save(tensors_.state(2), tensors_.at(2));
  EXPECT_EQ(Allocator::of({}).stats().current, current);
  checkpoints->finish();
  const auto synchronous = writer(false);
  synchronous->save(tensors_.state(3), tensors_.at(3));
  EXPECT_EQ(synchronous->staging_bytes(), 0);
}

// A state that the manifest's rules refuse, so that the save fails on the thread that writes.
CheckpointState impossible(const StepTensors& tensors, std::int64_t step) {
  CheckpointState state = tensors.state(step);
  state.samples = -1;
  return state;
}

TEST_F(CheckpointWriterTest, BackgroundErrorSurfacesAtTheNextCall) {
  const auto checkpoints = writer(true);
  checkpoints->save(tensors_.state(1), tensors_.at(1));
  checkpoints->save(impossible(tensors_, 2), tensors_.at(2));
  EXPECT_THROW(checkpoints->finish(), Error);
  EXPECT_NO_THROW(checkpoints->finish());
  checkpoints->save(impossible(tensors_, 2), tensors_.at(2));
  EXPECT_THROW(checkpoints->save(tensors_.state(3), tensors_.at(3)), Error);
  EXPECT_THAT(steps(), ElementsAre(1));  // the third was not begun
  checkpoints->save(tensors_.state(3), tensors_.at(3));
  checkpoints->finish();
  EXPECT_THAT(steps(), ElementsAre(3, 1));
}

TEST_F(CheckpointWriterTest, SynchronousErrorIsThrownBySave) {
  const auto checkpoints = writer(false);
  EXPECT_THROW(checkpoints->save(impossible(tensors_, 1), tensors_.at(1)), Error);
  EXPECT_NO_THROW(checkpoints->finish());
}

TEST_F(CheckpointWriterTest, KeepGoingReportsFailuresOnceAtTheEnd) {
  for (const bool async : {false, true}) {
    const auto checkpoints = writer(async, 0, OnSaveError::keep_training);
    checkpoints->save(impossible(tensors_, 1), tensors_.at(1));
    checkpoints->save(tensors_.state(2), tensors_.at(2));
    checkpoints->save(impossible(tensors_, 3), tensors_.at(3));
    try {
      checkpoints->finish();
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr("2 of 3 checkpoints could not be saved; the first: checkpoint of step 1"));
    }
    EXPECT_NO_THROW(checkpoints->finish());
    EXPECT_THAT(steps(), ElementsAre(2));
  }
}

TEST_F(CheckpointWriterTest, ResumedAndPinnedStepsSurviveRetention) {
  writer(false)->save(tensors_.state(1), tensors_.at(1));
  CheckpointOptions options;
  options.keep_latest = 1;
  options.async = false;
  options.resumed_from = 1;
  options.pinned = {3};
  CheckpointWriter checkpoints(dir_ / "checkpoints", lock_, options);
  for (const std::int64_t step : {2, 3, 4, 5}) checkpoints.save(tensors_.state(step), tensors_.at(step));
  EXPECT_THAT(steps(), ElementsAre(5, 3, 1));
}

// Resumed from step 10 of 10, 15, 20 and 30: none of the later ones is deleted, not even the one saved anew.
TEST_F(CheckpointWriterTest, GoingBackKeepsTheAbandonedLine) {
  for (const std::int64_t step : {10, 15, 20, 30}) writer(false, 0)->save(tensors_.state(step), tensors_.at(step));
  CheckpointOptions options;
  options.keep_latest = 1;
  options.async = false;
  options.resumed_from = 10;
  CheckpointWriter checkpoints(dir_ / "checkpoints", lock_, options);
  CheckpointState again = tensors_.state(20);
  again.tokens_seen = 7;
  for (int i = 0; i < 2; ++i) {  // its own step is replaced
    checkpoints.save(again, tensors_.at(20));
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir_ / "checkpoints"))
      if (entry.is_directory()) names.push_back(entry.path().filename().string());
    EXPECT_THAT(names, ::testing::UnorderedElementsAre("step-10", "step-15", "step-20", "step-30",
                                                       ::testing::StartsWith("kept-step-20-")));
  }
  EXPECT_EQ(CheckpointReader(dir_ / "checkpoints/step-20").state().tokens_seen, 7);
  for (const auto& entry : fs::directory_iterator(dir_ / "checkpoints")) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_directory()) continue;
    EXPECT_TRUE(verify_checkpoint(entry.path()).ok()) << name;
    EXPECT_EQ(fs::exists(entry.path() / "SUPERSEDED"), name != "step-10" && name != "step-20") << name;
    if (!name.starts_with("kept-")) continue;
    CheckpointReader kept(entry.path());
    EXPECT_EQ(tensors_.difference(kept), "");
  }
  checkpoints.save(tensors_.state(40), tensors_.at(40));
  EXPECT_THAT(steps(), ElementsAre(40, 30, 15, 10)) << "step-20, of the run's line, is deleted";
}

// A checkpoint of an abandoned line with the step of a best whose save failed is not the best.
TEST_F(CheckpointWriterTest, BestStepIgnoresAbandonedCheckpoints) {
  for (const std::int64_t step : {10, 20, 30})
    save_checkpoint(dir_ / "checkpoints", tensors_.state(step), tensors_.at(step));
  CheckpointOptions options;
  options.keep_latest = 1;
  options.async = false;
  options.on_error = OnSaveError::keep_training;
  options.resumed_from = 20;
  options.kept = 10;
  CheckpointWriter checkpoints(dir_ / "checkpoints", lock_, options);
  EXPECT_EQ(checkpoints.kept(), 10);
  checkpoints.keep(30);
  checkpoints.save(impossible(tensors_, 30), tensors_.at(30));
  checkpoints.save(tensors_.state(40), tensors_.at(40));
  EXPECT_EQ(checkpoints.kept(), 10);
  EXPECT_THROW(checkpoints.finish(), Error);
  EXPECT_TRUE(fs::exists(dir_ / "checkpoints/step-10"));
  checkpoints.go_back(5);
  EXPECT_EQ(checkpoints.kept(), std::nullopt);
}

TEST_F(CheckpointWriterTest, AFailedSaveOfTheBestKeepsTheBestBefore) {
  for (const bool async : {false, true}) {
    auto checkpoints = writer(async, 1, OnSaveError::keep_training);
    const auto save_best = [&](std::int64_t step, const CheckpointState& state) {
      checkpoints->keep(step);
      checkpoints->save(state, tensors_.at(step));
      checkpoints->wait();
    };
    save_best(1, tensors_.state(1));
    save_best(2, impossible(tensors_, 2));
    EXPECT_EQ(checkpoints->kept(), 1);
    checkpoints->save(tensors_.state(3), tensors_.at(3));
    EXPECT_THROW(checkpoints->finish(), Error);
    EXPECT_THAT(steps(), ElementsAre(3, 1));
    EXPECT_EQ(checkpoints->kept(), 1);

    CheckpointOptions options;  // options of a restart, whose best is still step 2
    options.keep_latest = 1;
    options.async = async;
    options.kept = 1;
    checkpoints.reset();
    checkpoints = std::make_unique<CheckpointWriter>(dir_ / "checkpoints", lock_, options);
    checkpoints->keep(2);
    checkpoints->save(tensors_.state(4), tensors_.at(4));
    checkpoints->finish();
    EXPECT_THAT(steps(), ElementsAre(4, 1));
    save_best(5, tensors_.state(5));
    checkpoints->save(tensors_.state(6), tensors_.at(6));
    checkpoints->finish();
    EXPECT_THAT(steps(), ElementsAre(6, 5));
    fs::remove_all(dir_ / "checkpoints");
  }
}

TEST_F(CheckpointWriterTest, StartRemovesLeftoversAndProbes) {
  fs::create_directories(dir_ / "checkpoints" / "step-9.tmp-0f8fad5b-d9cb-469f-a165-70867728950e");
  const auto checkpoints = writer(false);
  EXPECT_TRUE(fs::is_empty(checkpoints->folder()));
}

TEST_F(CheckpointWriterTest, CreatesNestedFolders) {
  CheckpointWriter checkpoints(dir_ / "a" / "b" / "c" / "", lock_, {});
  checkpoints.save(tensors_.state(1), tensors_.at(1));
  checkpoints.finish();
  EXPECT_EQ(latest_valid(dir_ / "a/b/c")->step, 1);
}

TEST_F(CheckpointWriterTest, BadOptionsAndFoldersAreRefused) {
  EXPECT_THROW(writer(false, -1), Error);
  testing::write_file(dir_ / "checkpoints", "");
  try {
    writer(false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_config);
    EXPECT_THAT(error.what(), HasSubstr("is a file; set checkpoint.folder"));
  }
  const TempDir other;
  EXPECT_THROW(CheckpointWriter(other.path(), lock_, {}), Error);  // not under the locked folder
  if (::geteuid() == 0) return;
  fs::permissions(other.path(), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_THROW(CheckpointWriter(other / "x", lock_, {}), Error);
  fs::permissions(other.path(), fs::perms::none);
  EXPECT_THROW(CheckpointWriter(other / "x", lock_, {}), Error);
  EXPECT_THROW(RunLock(other / "x"), Error);
  fs::permissions(other.path(), fs::perms::owner_all);
}

}  // namespace
}  // namespace quench
