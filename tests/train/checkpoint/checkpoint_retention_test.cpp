#include "train/checkpoint/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/system/temporary.h"
#include "tests/fault/checkpoint_contents.h"
#include "tests/fault/process.h"
#include "tests/testing.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/checkpoint/checkpoint_save.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing::MemoryDir;
using testing::StepTensors;

class CheckpointRetention : public ::testing::Test {
 protected:
  void save(std::initializer_list<std::int64_t> steps) {
    for (const std::int64_t step : steps) save_checkpoint(dir_.path(), tensors_.state(step), tensors_.at(step));
  }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(dir_.path()))
      if (entry.path().filename() != "LATEST") found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }

  MemoryDir dir_;
  StepTensors tensors_;
};

TEST_F(CheckpointRetention, KeepsTheNewest) {
  save({8, 9, 10, 11});
  apply_retention(dir_.path(), {2, {}});
  EXPECT_THAT(names(), ElementsAre("step-10", "step-11"));
  apply_retention(dir_.path(), {2, {}});
  EXPECT_THAT(names(), ElementsAre("step-10", "step-11"));
}

TEST_F(CheckpointRetention, ZeroKeepsAll) {
  save({1, 2, 3});
  apply_retention(dir_.path(), {0, {}});
  EXPECT_THAT(names(), ElementsAre("step-1", "step-2", "step-3"));
}

TEST_F(CheckpointRetention, DamagedCheckpointsAreIgnored) {
  save({1, 2, 3, 4, 5});
  testing::write_file(dir_ / "step-5" / "manifest.json", "{");
  fs::remove(dir_ / "step-2" / "rank-00000.safetensors");
  fs::create_directory(dir_ / "step-9");
  testing::write_file(dir_ / "step-10.bak", "");
  apply_retention(dir_.path(), {2, {}});
  EXPECT_THAT(names(), ElementsAre("step-10.bak", "step-2", "step-3", "step-4", "step-5", "step-9"));
}

TEST_F(CheckpointRetention, ProtectedOnesStay) {
  save({1, 2, 3, 4, 5, 6, 7});
  testing::write_file(dir_ / "step-1" / "PINNED", "");
  fs::create_directory_symlink("step-2", dir_ / "best");
  apply_retention(dir_.path(), {2, {3}});
  EXPECT_THAT(names(), ElementsAre("best", "step-1", "step-2", "step-3", "step-6", "step-7"));
  EXPECT_TRUE(fs::exists(dir_ / "best" / "manifest.json"));
}

TEST_F(CheckpointRetention, SupersededCheckpointsAreIgnored) {
  save({1, 2, 3, 9, 4});
  apply_retention(dir_.path(), {2, {}});
  EXPECT_THAT(names(), ElementsAre("step-3", "step-4", "step-9"));
}

TEST_F(CheckpointRetention, LinkedCheckpointElsewhereIsNotDeleted) {
  save({1, 2});
  fs::create_directory(dir_ / "archive");
  fs::rename(dir_ / "step-1", dir_ / "archive" / "step-1");
  fs::create_directory_symlink(dir_ / "archive" / "step-1", dir_ / "step-1");
  apply_retention(dir_.path(), {1, {}});
  EXPECT_THAT(names(), ElementsAre("archive", "step-1", "step-2"));
  EXPECT_TRUE(verify_checkpoint(dir_ / "archive" / "step-1").ok());
}

TEST_F(CheckpointRetention, KeepOneVerifiesTheNewestFirst) {
  save({1, 2});
  const fs::path data = dir_ / "step-2" / "rank-00000.safetensors";
  const std::string good = testing::read_file(data);
  std::string bad = good;
  bad.back() = static_cast<char>(bad.back() ^ 1);
  testing::write_file(data, bad);
  apply_retention(dir_.path(), {1, {}});
  EXPECT_THAT(names(), ElementsAre("step-1", "step-2"));
  testing::write_file(data, good);
  apply_retention(dir_.path(), {1, {}});
  EXPECT_THAT(names(), ElementsAre("step-2"));
}

TEST_F(CheckpointRetention, LeftoversOfDeadProcessesAreRemoved) {
  save({1, 3});
  const std::string uuid = "0f8fad5b-d9cb-469f-a165-70867728950e";
  for (const std::string& folder :
       {"step-2.tmp-" + uuid, "step-3.tmp-" + uuid + "-replaced", ".trash-probe-" + uuid,
        ".trash-probe-" + uuid + "-renamed", temporary_name(".trash-step-1").filename().string()}) {
    fs::create_directory(dir_ / folder);
    testing::write_file(dir_ / folder / "rank-00000.safetensors", "x");
  }
  testing::write_file(dir_ / temporary_name("LATEST").filename().string(), "x");
  remove_leftovers(dir_.path());
  EXPECT_THAT(names(), ElementsAre("step-1", "step-3"));
}

TEST_F(CheckpointRetention, NamesOfUsersStay) {
  save({1, 3});
  std::vector<std::string> mine{"step-1", "step-3"};
  for (const char* name :
       {"step-4.tmp-mine", "step-3.tmp-copy-replaced", ".trash-mine", ".trash-step-2", "step-x.tmp-y",
        "step-2.tmp-0f8fad5b-d9cb-469f-a165-70867728950e-mine", ".trash-probe-mine", "mine"}) {
    fs::create_directory(dir_ / name);
    testing::write_file(dir_ / name / "manifest.json", "x");
    mine.emplace_back(name);
  }
  for (const char* name : {"LATEST.tmp-1-2-3", "notes.tmp-1"}) {
    testing::write_file(dir_ / name, "x");
    mine.emplace_back(name);
  }
  std::ranges::sort(mine);
  remove_leftovers(dir_.path());
  apply_retention(dir_.path(), {1, {3}});
  std::erase(mine, "step-1");
  EXPECT_EQ(names(), mine);
}

// In a folder of the program's name, and in a checkpoint that is due to go.
TEST_F(CheckpointRetention, FilesOfUsersStay) {
  save({1, 2, 3});
  testing::write_file(dir_ / "step-1" / "notes.txt", "mine");
  const std::string left = "step-4.tmp-0f8fad5b-d9cb-469f-a165-70867728950e";
  fs::create_directory(dir_ / left);
  for (const char* name : {"notes.txt", "rank-00000.safetensors"}) testing::write_file(dir_ / left / name, "mine");
  remove_leftovers(dir_.path());
  apply_retention(dir_.path(), {1, {}});
  EXPECT_THAT(names(), ElementsAre("step-1", "step-3", left));
  EXPECT_TRUE(verify_checkpoint(dir_ / "step-1").ok());
  EXPECT_TRUE(fs::exists(dir_ / left / "notes.txt"));
  EXPECT_FALSE(fs::exists(dir_ / left / "rank-00000.safetensors"));
  // A run that saves the step again puts it aside.
  save({1});
  EXPECT_THAT(names(), ElementsAre(::testing::StartsWith("pinned-step-1-"), "step-1", "step-3", left));
  EXPECT_EQ(testing::read_file(dir_ / names().front() / "notes.txt"), "mine");
}

}  // namespace
}  // namespace quench
