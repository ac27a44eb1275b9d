// Runs whose checkpoints are copied to S3-compatible storage, and resume from there.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/s3_server/s3_environment.h"
#include "tests/train/run/trainer_fixture.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::S3Environment;
using testing::S3Server;
using testing::TinyRun;

class RemoteRunTest : public ::testing::Test {
 protected:
  RunConfig config(const std::string& name, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), "--checkpoint.remote=s3://models/runs/demo");
    return tiny_.config(name, more);
  }
  std::vector<std::string> steps_there() const {
    std::vector<std::string> steps;
    for (const auto& [key, content] : server_.objects())
      if (key.ends_with("/manifest.json")) steps.push_back(fs::path(key).parent_path().filename().string());
    return steps;
  }
  void lose(const std::string& name) const { fs::remove_all(tiny_.folder(name)); }
  std::string failure(const RunConfig& config) const {
    try {
      (void)tiny_.run(config);
    } catch (const Error& error) {
      return error.what();
    }
    return "(it ran)";
  }
  // Losses of the second part of the undisturbed run.
  std::vector<std::string> calm_losses_after(std::size_t step) const {
    (void)tiny_.run(tiny_.config("calm"));
    const std::vector<std::string> all = tiny_.losses("calm");
    return {all.begin() + static_cast<std::ptrdiff_t>(step), all.end()};
  }

  S3Server server_;
  S3Environment environment_{server_};
  TinyRun tiny_;
};

TEST_F(RemoteRunTest, CheckpointsArriveAndOldOnesAreDeleted) {
  (void)tiny_.run(config("run", {"--checkpoint.keep_latest=2"}));
  EXPECT_THAT(steps_there(), ElementsAre("step-30", "step-40"));
  for (const char* file : {"manifest.json", "rank-00000.safetensors"})
    EXPECT_EQ(server_.objects().at(std::string("runs/demo/step-40/") + file),
              testing::read_file(tiny_.checkpoint("run", 40) / file));
  EXPECT_EQ(server_.objects().size(), 4u);
}

TEST_F(RemoteRunTest, AnEmptyFolderResumesFromTheStorageBitForBit) {
  (void)tiny_.run(config("run"));
  EXPECT_EQ(steps_there().size(), 4u);
  lose("run");
  for (const char* step : {"step-30", "step-40"}) server_.erase(std::string("runs/demo/") + step + "/manifest.json");
  (void)tiny_.run(config("run"));
  EXPECT_EQ(tiny_.losses("run"), calm_losses_after(20));
  EXPECT_EQ(steps_there().size(), 4u);
}

TEST_F(RemoteRunTest, ACheckpointWithoutAnObjectIsSkipped) {
  (void)tiny_.run(config("run"));
  lose("run");
  server_.erase("runs/demo/step-40/rank-00000.safetensors");
  server_.put("runs/demo/step-30/manifest.json", "not a manifest");
  (void)tiny_.run(config("run"));
  EXPECT_EQ(tiny_.losses("run"), calm_losses_after(20));
}

TEST_F(RemoteRunTest, ANewerLocalCheckpointWins) {
  (void)tiny_.run(config("run", {"--training.steps=20", "--lr_schedule.decay_steps=40"}));
  (void)tiny_.run(tiny_.config("run", {"--training.steps=30", "--lr_schedule.decay_steps=40"}));
  server_.forget_requests();
  (void)tiny_.run(config("run", {"--lr_schedule.decay_steps=40"}));
  for (const testing::SeenS3Request& seen : server_.requests())
    EXPECT_FALSE(seen.method == "GET" && seen.target.find("rank-") != std::string::npos) << seen.target;
  EXPECT_THAT(steps_there(), ElementsAre("step-10", "step-20", "step-30", "step-40"));
}

TEST_F(RemoteRunTest, AStepOfTheStorageCanBeNamed) {
  (void)tiny_.run(config("run"));
  lose("run");
  (void)tiny_.run(config("run", {"--checkpoint.resume=10"}));
  EXPECT_EQ(tiny_.losses("run"), calm_losses_after(10));
  lose("run");
  EXPECT_THAT(failure(config("run", {"--checkpoint.resume=7"})), HasSubstr("has no checkpoint of step 7"));
}

TEST_F(RemoteRunTest, NothingButDamagedOnesIsNoBeginning) {
  (void)tiny_.run(config("run", {"--checkpoint.keep_latest=1"}));
  lose("run");
  server_.erase("runs/demo/step-40/rank-00000.safetensors");
  EXPECT_THAT(failure(config("run")), HasSubstr("none of which can be loaded"));
}

TEST_F(RemoteRunTest, ARunThatStartsAnewNeedsAnotherPrefix) {
  (void)tiny_.run(config("run"));
  EXPECT_THAT(failure(config("other", {"--checkpoint.resume=never"})), HasSubstr("name another prefix"));
  (void)tiny_.run(config("other", {"--checkpoint.resume=never", "--checkpoint.remote=s3://models/runs/other"}));
}

TEST_F(RemoteRunTest, FaultsAreNamedBeforeTheFirstStep) {
  EXPECT_THAT(failure(config("run", {"--checkpoint.remote=s3://absent/x"})),
              HasSubstr("checkpoint.remote: GET s3://absent/x/"));
  server_.set({.read_only = true});
  EXPECT_THAT(failure(config("run")), HasSubstr("s3:PutObject"));
  server_.set({.error = "ExpiredToken"});
  EXPECT_THAT(failure(config("run")), HasSubstr("has expired"));
  server_.stop();
  EXPECT_THAT(failure(config("run")), HasSubstr("AWS_ENDPOINT_URL_S3"));
  EXPECT_FALSE(fs::exists(tiny_.folder("run")));
  EXPECT_THROW((void)config("run", {"--checkpoint.remote=/disk"}), Error);
  environment_.unset("AWS_SECRET_ACCESS_KEY");
  EXPECT_THROW((void)config("run"), Error);
}

}  // namespace
}  // namespace quench
