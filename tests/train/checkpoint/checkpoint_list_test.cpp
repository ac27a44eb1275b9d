#include "train/checkpoint/checkpoint_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fault/checkpoint_contents.h"
#include "tests/fault/process.h"
#include "tests/testing.h"
#include "tests/train/metrics/captured_log.h"
#include "train/checkpoint/checkpoint_save.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MemoryDir;
using testing::StepTensors;

class CheckpointList : public ::testing::Test {
 protected:
  fs::path save(std::int64_t step) {
    return save_checkpoint(dir_.path(), tensors_.state(step), tensors_.at(step)).path;
  }

  // A byte in the middle of the last tensor.
  static void damage_data(const fs::path& checkpoint) {
    const auto path = checkpoint / "rank-00000.safetensors";
    std::string bytes = testing::read_file(path);
    bytes[bytes.size() - 100] = static_cast<char>(bytes[bytes.size() - 100] ^ 4);
    testing::write_file(path, bytes);
  }

  static void damage_manifest(const fs::path& checkpoint) { testing::write_file(checkpoint / "manifest.json", ""); }

  // Steps that load_latest tries, in order; the last one succeeds.
  std::vector<std::int64_t> loads() {
    std::vector<std::int64_t> tried;
    load_latest(dir_.path(), [&](CheckpointReader& reader) {
      tried.push_back(reader.state().step);
      EXPECT_EQ(tensors_.difference(reader), "");
    });
    return tried;
  }

  MemoryDir dir_;
  StepTensors tensors_;
};

TEST_F(CheckpointList, StepNames) {
  EXPECT_EQ(parse_step_name("step-0"), 0);
  EXPECT_EQ(parse_step_name("step-10"), 10);
  EXPECT_EQ(parse_step_name("step-9223372036854775807"), INT64_MAX);
  for (const char* name :
       {"", "step-", "step", "10", "step-000010", "step-00", "step-10.bak", "xstep-99", "step--1", "step-+1", "step- 1",
        "step-1 ", "step-9223372036854775808", "step-99999999999999999999", "Step-1", "step-1e3", "step-0x10"})
    EXPECT_EQ(parse_step_name(name), std::nullopt) << name;
  EXPECT_EQ(step_name(120), "step-120");
}

TEST_F(CheckpointList, AbsentOrEmptyFolderHoldsNone) {
  EXPECT_TRUE(list_checkpoints(dir_ / "absent").checkpoints.empty());
  EXPECT_EQ(latest_valid(dir_.path()), std::nullopt);
  EXPECT_TRUE(loads().empty());
  testing::write_file(dir_ / "file", "");
  EXPECT_THROW((void)list_checkpoints(dir_ / "file"), Error);
}

// The error that says there is no checkpoint is not preceded by a line for each file of another kind of folder.
TEST_F(CheckpointList, ForeignFilesAreNotLoggedWithoutCheckpoints) {
  testing::write_file(dir_ / "config.json", "{}");
  testing::write_file(dir_ / "log.txt", "");
  {
    const testing::CapturedLog log;
    EXPECT_EQ(latest_valid(dir_.path()), std::nullopt);
    EXPECT_EQ(log.lines(), 0u) << log.text();
  }
  fs::create_directory(dir_ / "step-10.bak");
  {
    const testing::CapturedLog log;
    EXPECT_EQ(latest_valid(dir_.path()), std::nullopt);
    EXPECT_EQ(log.lines(), 1u) << log.text();
    EXPECT_THAT(log.text(), HasSubstr("step-10.bak: ignored"));
  }
  save(70);
  const testing::CapturedLog log;
  EXPECT_EQ(latest_valid(dir_.path())->step, 70);
  EXPECT_EQ(log.lines(), 3u) << log.text();
}

TEST_F(CheckpointList, StepsAreOrderedAsNumbers) {
  for (const std::int64_t step : {9, 10, 100}) save(step);
  std::vector<std::int64_t> steps;
  for (const CheckpointInfo& info : list_checkpoints(dir_.path()).checkpoints) steps.push_back(info.step);
  EXPECT_THAT(steps, ElementsAre(100, 10, 9));
  EXPECT_EQ(latest_valid(dir_.path())->step, 100);
}

TEST_F(CheckpointList, JunkIsListedWithOneReasonEach) {
  save(70);
  fs::create_directory(dir_ / "step-000010");
  fs::copy(dir_ / "step-70", dir_ / "step-10.bak");
  fs::copy(dir_ / "step-70", dir_ / "xstep-99");
  fs::create_directory(dir_ / "step-99999999999999999999");
  testing::write_file(dir_ / "notes", "");
  testing::write_file(dir_ / "step-5", "");
  fs::create_symlink("nowhere", dir_ / "step-11");
  fs::create_directory(dir_ / "step-12");
  fs::create_directory(dir_ / "step-13.tmp-abc");
  fs::create_directory(dir_ / ".trash-step-14");
  fs::copy(dir_ / "step-70", dir_ / ".trash-step-15");
  const CheckpointListing listing = list_checkpoints(dir_.path());
  std::vector<std::string> found;
  for (const CheckpointInfo& info : listing.checkpoints)
    found.push_back(fmt::format("{} {}{}", info.step, info.unjudged ? "?" : "", info.fault));
  EXPECT_THAT(found,
              ElementsAre("70 ", "12 ?it has no manifest.json",
                          "11 ?it is a dangling symbolic link: is its target mounted?", "5 ?it is not a folder"));
  std::vector<std::string> ignored;
  for (const IgnoredEntry& entry : listing.ignored) {
    EXPECT_EQ(entry.reason, "its name is not step-<number>");
    ignored.push_back(entry.name + (entry.renamed ? " (renamed)" : ""));
  }
  EXPECT_THAT(ignored, ElementsAre("notes", "step-000010 (renamed)", "step-10.bak (renamed)",
                                   "step-99999999999999999999 (renamed)", "xstep-99 (renamed)"));
  EXPECT_THAT(listing.discarded, ElementsAre(".trash-step-15"));
  EXPECT_EQ(latest_valid(dir_.path())->step, 70);
  EXPECT_THAT(loads(), ElementsAre(70));
}

TEST_F(CheckpointList, SymbolicLinkToACheckpointCounts) {
  const fs::path real = save(3);
  fs::create_directory(dir_ / "elsewhere");
  fs::rename(real, dir_ / "elsewhere" / "step-3");
  fs::create_directory_symlink(dir_ / "elsewhere" / "step-3", dir_ / "step-3");
  const auto info = latest_valid(dir_.path());
  ASSERT_TRUE(info);
  EXPECT_TRUE(info->symlink);
  EXPECT_THAT(loads(), ElementsAre(3));
}

TEST_F(CheckpointList, FallsBackOverDamagedOnes) {
  for (const std::int64_t step : {1, 2, 3, 4}) save(step);
  damage_data(dir_ / "step-4");
  damage_manifest(dir_ / "step-3");
  fs::resize_file(dir_ / "step-2" / "rank-00000.safetensors", 100);
  const CheckpointListing listing = list_checkpoints(dir_.path());
  EXPECT_TRUE(listing.checkpoints[0].valid);  // its data have not been read
  EXPECT_FALSE(listing.checkpoints[1].valid);
  EXPECT_FALSE(listing.checkpoints[2].valid);
  EXPECT_THAT(listing.checkpoints[2].fault, HasSubstr("has 100 bytes"));
  EXPECT_THAT(loads(), ElementsAre(4, 1));
}

TEST_F(CheckpointList, NothingLoadableIsAnErrorAndNoFreshStart) {
  for (const std::int64_t step : {1, 2}) save(step);
  damage_data(dir_ / "step-2");
  damage_manifest(dir_ / "step-1");
  try {
    loads();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_THAT(error.what(), HasSubstr("none of the checkpoints"));
    EXPECT_THAT(error.what(), HasSubstr("tensor 'bulk'"));
    EXPECT_THAT(error.what(), HasSubstr("step-1/manifest.json"));
  }
}

TEST_F(CheckpointList, OtherErrorsOfTheLoaderPassThrough) {
  for (const std::int64_t step : {1, 2}) save(step);
  int calls = 0;
  EXPECT_THROW(load_latest(dir_.path(),
                           [&](CheckpointReader& reader) {
                             ++calls;
                             (void)reader.at("a tensor of another model");
                           }),
               Error);
  EXPECT_EQ(calls, 1);
}

TEST_F(CheckpointList, NewestOfANewerProgramIsRefusedNotSkipped) {
  for (const std::int64_t step : {1, 2}) save(step);
  const fs::path path = dir_ / "step-2" / "manifest.json";
  std::string text = testing::read_file(path);
  const std::string version = "\"format_version\": 1";
  text.replace(text.find(version), version.size(), "\"format_version\": 9");
  stamp_manifest_hash(text);
  testing::write_file(path, text);
  try {
    loads();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("format 9"));
  }
}

TEST_F(CheckpointList, GoingBackSupersedesLaterSteps) {
  for (const std::int64_t step : {100, 200, 300}) save(step);
  save(150);  // after resuming from 100
  const CheckpointListing listing = list_checkpoints(dir_.path());
  std::vector<std::string> states;
  for (const CheckpointInfo& info : listing.checkpoints)
    states.push_back(fmt::format("{}{}", info.step, info.superseded ? " superseded" : ""));
  EXPECT_THAT(states, ElementsAre("300 superseded", "200 superseded", "150", "100"));
  EXPECT_THAT(loads(), ElementsAre(150));
  EXPECT_TRUE(verify_checkpoint(dir_ / "step-300").ok());  // nothing in it was touched
  save(200);
  EXPECT_FALSE(list_checkpoints(dir_.path()).checkpoints[1].superseded);
  EXPECT_THAT(loads(), ElementsAre(200));
}

TEST_F(CheckpointList, SavingAStepAgainReplacesIt) {
  save(1);
  damage_data(save(2));
  save(2);
  EXPECT_THAT(loads(), ElementsAre(2));
  testing::write_file(dir_ / "step-2" / "PINNED", "");
  save(2);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir_.path())) names.push_back(entry.path().filename().string());
  EXPECT_THAT(names,
              ::testing::UnorderedElementsAre("LATEST", "step-1", "step-2", ::testing::StartsWith("pinned-step-2-")));
  EXPECT_FALSE(fs::exists(dir_ / "step-2" / "PINNED"));
  EXPECT_EQ(testing::read_file(dir_ / "LATEST"), "step-2\n");
}

TEST(CheckpointFormat, ReadsTheFirstFormat) {
  const fs::path folder = testing::source_dir() / "tests/train/checkpoint_format_1";
  ASSERT_TRUE(fs::is_directory(folder)) << folder;
  const auto loaded = load_latest(folder, [&](CheckpointReader& reader) {
    EXPECT_EQ(StepTensors(256).difference(reader), "");
    EXPECT_EQ(reader.state().config.at("lr").as_double(), 3e-4);
  });
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->step, 7);
}

}  // namespace
}  // namespace quench
