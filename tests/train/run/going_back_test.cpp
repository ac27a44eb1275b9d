// Runs that continue from an earlier checkpoint than the newest: resumed by step or path, or rolled back.

#include <gmock/gmock.h>

#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/checkpoint/checkpoint_list.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Options = std::vector<std::string>;

class GoingBack : public ::testing::Test {
 protected:
  TrainResult run(const std::string& name, const Options& more) const {
    Options all{"--lr_schedule.decay_steps=36"};
    all.insert(all.end(), more.begin(), more.end());
    return tiny_.run(tiny_.config(name, all));
  }
  // Names of the checkpoints in a folder, uuids cut off, "*" for a superseded one.
  [[nodiscard]] static Options checkpoints_in(const fs::path& folder) {
    Options names;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (!entry.is_directory()) continue;
      std::string name = entry.path().filename().string();
      if (name.starts_with("kept-")) name.resize(name.find('-', sizeof("kept-step")));
      names.push_back(name + (fs::exists(entry.path() / kSupersededMarker) ? "*" : ""));
      if (name.starts_with(kEarlierPrefix)) continue;
      EXPECT_TRUE(verify_checkpoint(entry.path()).ok()) << name;
    }
    std::ranges::sort(names);
    return names;
  }
  [[nodiscard]] Options checkpoints(const std::string& name) const {
    return checkpoints_in(tiny_.folder(name) / "checkpoints");
  }

  // A learning rate under which the loss soon is not finite, also after the rollback. Steps that the run rolled back
  // to.
  [[nodiscard]] std::vector<std::int64_t> rollbacks(const std::string& name, Options more) const {
    more.insert(more.end(), {"--training.on_nonfinite=rollback", "--optimizer.lr=1000", "--training.max_norm=0"});
    try {
      run(name, more);
      ADD_FAILURE() << "all values were finite";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::nonfinite) << error.what();
    }
    std::vector<std::int64_t> steps;
    std::istringstream lines(testing::read_file(tiny_.folder(name) / "metrics/events.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (const Json event = Json::parse(line); event.at("event").as_string() == "rollback")
        steps.push_back(event.at("step").as_int());
    return steps;
  }

  testing::TinyRun tiny_;
};

TEST_F(GoingBack, ALinkToACheckpointOfTheFolderIsThatCheckpoint) {
  run("run", {"--training.steps=20"});
  const fs::path link = tiny_.folder("run") / "checkpoints/best";
  fs::create_directory_symlink("step-20", link);
  run("run", {"--training.steps=30", "--checkpoint.resume=" + link.string()});
  fs::remove(link);
  EXPECT_THAT(checkpoints("run"), ElementsAre("step-10", "step-20", "step-30"));
}

// Until a checkpoint of this start exists, the run's config.json starts as this command did.
TEST_F(GoingBack, TheRunsConfigContinuesOnceACheckpointExists) {
  run("run", {"--training.steps=20"});
  const auto resume = [this] {
    return Json::parse_file(tiny_.folder("run") / "config.json").at("checkpoint").at("resume").as_string();
  };
  EXPECT_EQ(resume(), "auto");
  run("run",
      {"--training.steps=15", "--checkpoint.resume=never", "--checkpoint.interval=0", "--checkpoint.save_final=false"});
  EXPECT_EQ(resume(), "never");
  EXPECT_THAT(checkpoints("run"), ElementsAre("step-10", "step-20"));
  run("run", {"--training.steps=15", "--checkpoint.resume=never"});
  EXPECT_EQ(resume(), "auto");
}

TEST_F(GoingBack, KeepsTheCheckpointsOfTheAbandonedLine) {
  run("run", {"--training.steps=30"});
  fs::copy(tiny_.checkpoint("run", 20), tiny_.folder("copy"), fs::copy_options::recursive);
  run("run", {"--training.steps=20", "--checkpoint.resume=10", "--optimizer.lr=1e-3"});
  EXPECT_THAT(checkpoints("run"), ElementsAre("kept-step-20*", "step-10", "step-20", "step-30*"));
  for (const auto& entry : fs::directory_iterator(tiny_.folder("run") / "checkpoints"))
    if (entry.path().filename().string().starts_with("kept-"))
      testing::expect_same_tensors(entry.path(), tiny_.folder("copy"));
  // The new line is the one that continues, and replaces nothing.
  EXPECT_EQ(run("run", {"--training.steps=30", "--optimizer.lr=1e-3"}).step, 30);
  EXPECT_THAT(checkpoints("run"), ElementsAre("kept-step-20*", "kept-step-30*", "step-10", "step-20", "step-30"));
  // Back to the abandoned line.
  std::string kept;
  for (const auto& entry : fs::directory_iterator(tiny_.folder("run") / "checkpoints"))
    if (entry.path().filename().string().starts_with("kept-step-20")) kept = entry.path();
  run("run", {"--training.steps=40", "--checkpoint.resume=" + kept, "--checkpoint.interval=20"});
  EXPECT_THAT(checkpoints("run"),
              ElementsAre("kept-step-20*", "kept-step-30*", "step-10", "step-20*", "step-30*", "step-40"));
}

TEST_F(GoingBack, ACheckpointOfAnotherFolderSetsTheFoldersOwnAside) {
  run("source", {"--training.steps=10"});
  run("run", {"--training.steps=20"});
  const Options short_run{"--training.steps=20", "--checkpoint.keep_latest=1"};
  const auto from = [&](const std::string& path) {
    Options all = short_run;
    all.push_back("--checkpoint.resume=" + path);
    return all;
  };
  run("run", from(tiny_.checkpoint("source", 10).string()));
  EXPECT_THAT(checkpoints("run"), ElementsAre("earlier-1", "step-20"));
  EXPECT_THAT(checkpoints_in(tiny_.folder("run") / "checkpoints/earlier-1"), ElementsAre("step-10", "step-20"));

  // One of its own, however it is named, is a step back.
  run("own", {"--training.steps=20"});
  run("own", from((tiny_.folder("own") / "metrics/../checkpoints/step-10/").string()));
  EXPECT_THAT(checkpoints("own"), ElementsAre("kept-step-20*", "step-10", "step-20"));
}

TEST_F(GoingBack, ARollbackStaysOnTheRunsLine) {
  run("run", {"--training.steps=30"});
  EXPECT_THAT(rollbacks("run", {"--checkpoint.resume=10", "--checkpoint.interval=30"}), ElementsAre(10))
      << "not step 30, which it left";
  const std::string checkpoint = tiny_.checkpoint("run", 10).string();
  EXPECT_THAT(rollbacks("empty", {"--checkpoint.resume=" + checkpoint, "--checkpoint.interval=30"}), ElementsAre(10))
      << "from another folder";
  const auto own = rollbacks("own", {"--checkpoint.resume=" + checkpoint, "--checkpoint.interval=1"});
  ASSERT_EQ(own.size(), 1u);
  EXPECT_GT(own[0], 10) << "the last that it saved";
  EXPECT_LT(own[0], 30);
  EXPECT_THAT(rollbacks("fresh", {"--checkpoint.interval=30"}), ElementsAre()) << "nothing was saved yet";
}

// An interrupted save had moved it away; its name returns before the first save.
TEST_F(GoingBack, AReplacedCheckpointStaysInTheLine) {
  run("run", {"--training.steps=10"});
  fs::rename(tiny_.checkpoint("run", 10), tiny_.folder("run") / "checkpoints/step-10.tmp-a-replaced");
  EXPECT_THAT(rollbacks("run", {"--checkpoint.interval=30"}), ElementsAre(10));
  const Options found = checkpoints("run");
  EXPECT_THAT(found, ::testing::Contains("step-10"));
  EXPECT_THAT(found, ::testing::Not(::testing::Contains(HasSubstr("*"))));
}

}  // namespace
}  // namespace quench
