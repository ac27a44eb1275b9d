// Ways in which the checkpoints of a run stop being usable. A run neither starts from the beginning nor continues from
// an older state because of any of them: it ends with an error that names what it found, and touches nothing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "tests/fault/checkpoint_contents.h"
#include "tests/fault/process.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/checkpoint/checkpoint_save.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using testing::driver;
using testing::Finished;
using ::testing::HasSubstr;
using testing::MemoryDir;
using ::testing::Not;
using testing::Process;
using testing::StepTensors;

constexpr int kSteps = 3;

void for_each_step(const fs::path& folder, const std::function<void(const fs::path&)>& body) {
  for (int step = 1; step <= kSteps; ++step) body(folder / step_name(step));
}

struct Way {
  const char* name;
  const char* said;                                   // what the error says about one of the entries
  std::function<void(const fs::path& folder)> do_it;  // to a folder with steps 1, 2 and 3
  const char* fault = "";                             // faults of file-system calls, from the start of the next run
};

void nothing(const fs::path&) {}

std::function<void(const fs::path&)> rename_each(const std::function<std::string(const std::string&)>& name) {
  return [name](const fs::path& folder) {
    for_each_step(folder, [&](const fs::path& step) { fs::rename(step, folder / name(step.filename().string())); });
  };
}

const std::vector<Way> kWays = {
    {"ManifestsRemoved", "it has no manifest.json",
     [](const fs::path& folder) {
       for_each_step(folder, [](const fs::path& step) { fs::remove(step / "manifest.json"); });
     }},
    {"NewestManifestRemoved", "it has no manifest.json",
     [](const fs::path& folder) { fs::remove(folder / "step-3" / "manifest.json"); }},
    {"ManifestsEmpty", "manifest.json",
     [](const fs::path& folder) {
       for_each_step(folder, [](const fs::path& step) { fs::resize_file(step / "manifest.json", 0); });
     }},
    {"ManifestsAreFolders", "manifest.json",
     [](const fs::path& folder) {
       for_each_step(folder, [](const fs::path& step) {
         fs::remove(step / "manifest.json");
         fs::create_directory(step / "manifest.json");
       });
     }},
    {"ManifestsAreLinksToNothing", "manifest.json",
     [](const fs::path& folder) {
       for_each_step(folder, [](const fs::path& step) {
         fs::remove(step / "manifest.json");
         fs::create_symlink("nowhere", step / "manifest.json");
       });
     }},
    {"ManifestsMayNotBeRead", "Permission denied", nothing, "do=EACCES;ops=open;path=manifest.json"},
    {"ManifestsHaveReadErrors", "Input/output error", nothing, "do=EIO;ops=open;path=manifest.json"},
    {"NewestManifestHasAReadError", "step-3: ", nothing, "do=EIO;ops=open;path=step-3/manifest.json"},
    {"FoldersMayNotBeEntered", "Permission denied", nothing, "do=EACCES;ops=open,stat;path=/step-"},
    {"ContentMayNotBeSeen", "Permission denied", nothing, "do=EACCES;ops=open,stat;path=/step-3/"},
    {"FoldersHaveReadErrors", "Input/output error", nothing, "do=EIO;ops=stat;path=/step-"},
    {"MarkersHaveReadErrors", "cannot check whether it has a file SUPERSEDED", nothing,
     "do=EIO;ops=stat;path=SUPERSEDED"},
    {"MarkersMayNotBeSeen", "cannot check whether it has a file SUPERSEDED", nothing,
     "do=EACCES;ops=stat;path=SUPERSEDED"},
    {"DataMayNotBeRead", "Permission denied", nothing, "do=EACCES;ops=open;path=rank-00000"},
    {"NewestDataHasAReadError", "Input/output error", nothing, "do=EIO;ops=open;path=step-3/rank-00000"},
    {"LinksToAnArchiveThatIsNotThere", "is its target mounted?",
     [](const fs::path& folder) {
       for_each_step(folder, [](const fs::path& step) {
         fs::remove_all(step);
         fs::create_directory_symlink("/archive/that/is/not/mounted" / step.filename(), step);
       });
     }},
    {"NewestIsALinkToNothing", "is its target mounted?",
     [](const fs::path& folder) {
       fs::remove_all(folder / "step-3");
       fs::create_directory_symlink("nowhere", folder / "step-3");
     }},
    {"LinksInALoop", "it cannot be inspected",
     [](const fs::path& folder) {
       for_each_step(folder, [](const fs::path& step) {
         fs::remove_all(step);
         fs::create_directory_symlink(step.filename(), step);
       });
     }},
    {"FoldersBecameFiles", "it is not a folder",
     [](const fs::path& folder) {
       for_each_step(folder, [](const fs::path& step) {
         fs::remove_all(step);
         testing::write_file(step, "packed");
       });
     }},
    {"FoldersEmptied", "it has no manifest.json",
     [](const fs::path& folder) {
       for_each_step(folder, [](const fs::path& step) {
         fs::remove_all(step);
         fs::create_directory(step);
       });
     }},
    {"DataRemoved", "rank-00000.safetensors",
     [](const fs::path& folder) {
       for_each_step(folder, [](const fs::path& step) { fs::remove(step / "rank-00000.safetensors"); });
     }},
    {"DataCut", "has 100 bytes",
     [](const fs::path& folder) {
       for_each_step(folder, [](const fs::path& step) { fs::resize_file(step / "rank-00000.safetensors", 100); });
     }},
    {"AllSuperseded", "step-3: superseded",
     [](const fs::path& folder) {
       for_each_step(folder, [](const fs::path& step) { testing::write_file(step / "SUPERSEDED", ""); });
     }},
    {"RenamedToBackups", "step-3.bak: its name is not step-<number>",
     rename_each([](const std::string& name) { return name + ".bak"; })},
    {"RenamedWithZeros", "step-0003", rename_each([](const std::string& name) { return "step-000" + name.substr(5); })},
    {"RenamedWithAPrefix", "old-step-3", rename_each([](const std::string& name) { return "old-" + name; })},
    {"RenamedAsByAPinnedSave", "pinned-step-3-1234",
     rename_each([](const std::string& name) { return "pinned-" + name + "-1234"; })},
    {"Renumbered", "holds the checkpoint of step 3", rename_each([](const std::string& name) { return name + "0"; })},
    {"PackedBeside", "step-3.tar.gz",
     [](const fs::path& folder) {
       for_each_step(folder, [](const fs::path& step) {
         fs::remove_all(step);
         testing::write_file(step.string() + ".tar.gz", "packed");
       });
     }},
    {"OnTheirWayToDeletion", "its deletion was interrupted",
     rename_each([](const std::string& name) { return ".trash-" + name + ".tmp-1-2"; })},
    {"FolderIsALinkToNothing", "is its target mounted?",
     [](const fs::path& folder) {
       fs::remove_all(folder);
       fs::create_directory_symlink("/archive/that/is/not/mounted", folder);
     }},
};

class ResumeRefused : public ::testing::TestWithParam<Way> {
 protected:
  ResumeRefused() {
    for (int step = 1; step <= kSteps; ++step) save_checkpoint(folder_, tensors_.state(step), tensors_.at(step));
  }

  // Path and content of all there is, but for the lock.
  [[nodiscard]] std::map<std::string, std::string> contents() const {
    std::map<std::string, std::string> found;
    if (!fs::is_directory(folder_)) return found;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      if (entry.path().filename() == ".lock") continue;
      std::error_code ignored;
      const bool file = !entry.is_symlink() && entry.is_regular_file(ignored);
      found[entry.path().string()] = file ? testing::read_file(entry.path()) : "";
    }
    return found;
  }

  MemoryDir dir_;
  fs::path folder_ = dir_ / "run" / "checkpoints";
  StepTensors tensors_;
};

TEST_P(ResumeRefused, NothingIsAbandonedOrTouched) {
  const Way& way = GetParam();
  way.do_it(folder_);
  const auto before = contents();
  const Finished run = Process(driver(folder_, 5, {"lock=" + (dir_ / "run").string()}), way.fault).wait();
  EXPECT_EQ(run.status, 1) << run.output;
  EXPECT_THAT(run.output, HasSubstr("error "));
  EXPECT_THAT(run.output, HasSubstr(way.said));
  EXPECT_THAT(run.output, HasSubstr(folder_.string()));
  EXPECT_THAT(run.output, Not(HasSubstr("resumed")));
  EXPECT_THAT(run.output, Not(HasSubstr("saved 4")));
  EXPECT_EQ(contents(), before);
}

INSTANTIATE_TEST_SUITE_P(Ways, ResumeRefused, ::testing::ValuesIn(kWays),
                         [](const auto& way) { return std::string(way.param.name); });

class ResumeGoesOn : public ResumeRefused {};

const std::vector<Way> kHarmless = {
    {"LeftoverOfAnInterruptedSave", "resumed 3",
     [](const fs::path& folder) { fs::create_directory(folder / "step-4.tmp-1234"); }},
    {"WholeLeftoverOfAnInterruptedSave", "resumed 3",
     [](const fs::path& folder) { fs::copy(folder / "step-3", folder / "step-3.tmp-1234"); }},
    {"OlderManifestRemoved", "resumed 3",
     [](const fs::path& folder) { fs::remove(folder / "step-2" / "manifest.json"); }},
    {"OlderLinkToNothing", "resumed 3",
     [](const fs::path& folder) {
       fs::remove_all(folder / "step-2");
       fs::create_directory_symlink("nowhere", folder / "step-2");
     }},
    {"BackupBeside", "resumed 3", [](const fs::path& folder) { fs::copy(folder / "step-3", folder / "step-9.bak"); }},
    {"NewestDamaged", "resumed 2",
     [](const fs::path& folder) { fs::resize_file(folder / "step-3" / "manifest.json", 50); }},
    {"NewestMovedAwayByAnInterruptedSave", "resumed 3",
     [](const fs::path& folder) {
       fs::copy(folder / "step-3", folder / "step-3.tmp-1234");
       fs::rename(folder / "step-3", folder / "step-3.tmp-1234-replaced");
     }},
    {"OnlyNotesAndLogs", "resumed 0",
     [](const fs::path& folder) {
       for_each_step(folder, [](const fs::path& step) { fs::remove_all(step); });
       testing::write_file(folder / "notes on step sizes.txt", "");
     }},
};

TEST_P(ResumeGoesOn, HarmlessDamageDoesNotStopTheRun) {
  const Way& way = GetParam();
  way.do_it(folder_);
  const Finished run = Process(driver(folder_, 5, {"lock=" + (dir_ / "run").string(), "keep=0"}), way.fault).wait();
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr(way.said));
  EXPECT_TRUE(verify_checkpoint(folder_ / "step-5").ok());
}

INSTANTIATE_TEST_SUITE_P(Ways, ResumeGoesOn, ::testing::ValuesIn(kHarmless),
                         [](const auto& way) { return std::string(way.param.name); });

class ResumeDecided : public ResumeRefused {};

// The user continues from an older step: what stood in the way stays, also under the number of a new save.
TEST_F(ResumeDecided, UnreadableStepIsRenamedWhenItsNumberIsSaved) {
  fs::remove(folder_ / "step-3" / "manifest.json");
  save_checkpoint(folder_, tensors_.state(3), tensors_.at(3));
  EXPECT_TRUE(verify_checkpoint(folder_ / "step-3").ok());
  std::vector<std::string> kept;
  for (const auto& entry : fs::directory_iterator(folder_))
    if (entry.path().filename().string().starts_with("kept-step-3-")) kept.push_back(entry.path());
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_TRUE(fs::exists(fs::path(kept[0]) / "rank-00000.safetensors"));
}

TEST_F(ResumeDecided, ErrorNamesTheResumeFlag) {
  fs::remove(folder_ / "step-3" / "manifest.json");
  try {
    load_latest(folder_, [](CheckpointReader&) {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_THAT(error.what(), HasSubstr("--checkpoint.resume=2"));
    EXPECT_THAT(error.what(), HasSubstr("move them out of the folder"));
  }
}

}  // namespace
}  // namespace quench
