// Checkpoints that several ranks upload, and a storage that fails meanwhile.

#include "train/remote/remote_upload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/tensor/tensor.h"
#include "tests/s3_server/s3_environment.h"
#include "tests/testing.h"
#include "tests/train/checkpoint/on_ranks.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/checkpoint/checkpoint_save.h"
#include "train/remote/remote_uploader.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::on_ranks;
using testing::S3Environment;
using testing::S3Server;
using testing::TempDir;

constexpr const char* kAddress = "s3://models/run";

class RemoteUploadTest : public ::testing::Test {
 protected:
  // Checkpoint of as many files as ranks; every save has other values.
  void save(std::int64_t step, int ranks = 1) {
    const float value = static_cast<float>(++saves_);
    const auto write = [&](distributed::ProcessGroup* group) {
      const int rank = group == nullptr ? 0 : group->rank();
      const Tensor rows = Tensor::from_values<float>({100}, std::vector<float>(100, value));
      (void)save_checkpoint(folder_.path(), {.step = step}, {{{"w", {100 * ranks}, {100 * rank, 100}, rows, {}}}},
                            group, nullptr);
    };
    if (ranks == 1) return write(nullptr);
    for (const std::string& error : on_ranks(ranks, [&](distributed::ProcessGroup& group) { write(&group); }))
      EXPECT_EQ(error, "");
  }
  RemoteUpload upload_of(std::int64_t step, RunLine line = {}, std::vector<std::int64_t> kept = {}) const {
    return {.step = step, .path = folder_ / step_name(step), .line = std::move(line), .kept = std::move(kept)};
  }
  static UploadOptions options(int rank = 0, int ranks = 1, int keep_latest = 0) {
    return {.rank = rank, .ranks = ranks, .keep_latest = keep_latest, .pause = [](double seconds) {
              std::this_thread::sleep_for(std::chrono::duration<double>(seconds / 10));
            }};
  }
  bool send(const RemoteUpload& upload, int keep_latest = 0) const {
    RemoteStore store(kAddress, {}, false);
    if (!upload_checkpoint(store, upload, options())) return false;
    apply_remote_retention(store, upload, options(0, 1, keep_latest));
    return true;
  }
  std::vector<std::string> keys() const {
    std::vector<std::string> found;
    for (const auto& [key, content] : server_.objects()) found.push_back(key.substr(4));
    return found;
  }
  int count(const std::string& method, const std::string& part) const {
    int sum = 0;
    for (const testing::SeenS3Request& seen : server_.requests())
      sum += seen.method == method && seen.target.find(part) != std::string::npos;
    return sum;
  }
  fs::path fetched(std::int64_t step) const {
    RemoteStore store(kAddress, {}, false);
    for (const RemoteCheckpoint& checkpoint : store.list())
      if (checkpoint.step == step) store.fetch(checkpoint, folder_ / "fetched");
    return folder_ / "fetched" / step_name(step);
  }

  S3Server server_;
  S3Environment environment_{server_};
  TempDir folder_;
  int saves_ = 0;
};

TEST_F(RemoteUploadTest, ManifestComesLastAndTheCopyIsWhole) {
  save(7);
  ASSERT_TRUE(send(upload_of(7)));
  EXPECT_THAT(keys(), ElementsAre("step-7/manifest.json", "step-7/rank-00000.safetensors"));
  std::string last;
  for (const testing::SeenS3Request& seen : server_.requests())
    if (seen.method == "PUT") last = seen.target;
  EXPECT_EQ(last, "/models/run/step-7/manifest.json");
  EXPECT_TRUE(verify_checkpoint(fetched(7)).ok());
  EXPECT_EQ(testing::read_file(fetched(7) / "manifest.json"), testing::read_file(folder_ / "step-7/manifest.json"));
}

TEST_F(RemoteUploadTest, FilesThatTheStorageHasAreNotSentAgain) {
  save(7);
  ASSERT_TRUE(send(upload_of(7)));
  server_.erase("run/step-7/manifest.json");
  server_.forget_requests();
  ASSERT_TRUE(send(upload_of(7)));
  EXPECT_EQ(count("PUT", "rank-"), 0);
  EXPECT_EQ(count("PUT", "manifest"), 1);
  server_.forget_requests();
  ASSERT_TRUE(send(upload_of(7)));
  EXPECT_EQ(count("PUT", ""), 0);
}

TEST_F(RemoteUploadTest, RanksSendTheirFilesAndTheFirstTheManifestAfterAll) {
  save(7, 3);
  std::atomic<bool> first_done = false;
  std::thread first([&] {
    RemoteStore store(kAddress, {}, false);
    EXPECT_TRUE(upload_checkpoint(store, upload_of(7), options(0, 3)));
    first_done = true;
  });
  RemoteStore store(kAddress, {}, false);
  EXPECT_TRUE(upload_checkpoint(store, upload_of(7), options(2, 3)));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_FALSE(first_done);
  EXPECT_FALSE(server_.objects().contains("run/step-7/manifest.json"));
  EXPECT_TRUE(upload_checkpoint(store, upload_of(7), options(1, 3)));
  first.join();
  EXPECT_EQ(keys().size(), 4u);
  EXPECT_TRUE(verify_checkpoint(fetched(7)).ok());
}

TEST_F(RemoteUploadTest, FewerRanksSendTheFilesOfMore) {
  save(7, 3);
  ASSERT_TRUE(send(upload_of(7)));
  EXPECT_TRUE(verify_checkpoint(fetched(7)).ok());
}

TEST_F(RemoteUploadTest, AnotherSaveOfTheStepReplacesItWhole) {
  save(7);
  ASSERT_TRUE(send(upload_of(7)));
  save(7);
  server_.put("run/step-7/SUPERSEDED", "");
  server_.forget_requests();
  ASSERT_TRUE(send(upload_of(7)));
  std::vector<std::string> order;
  for (const testing::SeenS3Request& seen : server_.requests())
    if (seen.method != "HEAD" && seen.method != "GET") order.push_back(seen.method + seen.target.substr(19));
  EXPECT_THAT(order,
              ElementsAre("DELETEmanifest.json", "PUTrank-00000.safetensors", "DELETESUPERSEDED", "PUTmanifest.json"));
  EXPECT_TRUE(verify_checkpoint(fetched(7)).ok());
}

TEST_F(RemoteUploadTest, ADeletedCheckpointIsNotSent) {
  save(7);
  fs::remove_all(folder_ / "step-7");
  EXPECT_FALSE(send(upload_of(7)));
  EXPECT_TRUE(keys().empty());
}

TEST_F(RemoteUploadTest, OldOnesAreDeletedManifestFirst) {
  for (const std::int64_t step : {1, 2, 3, 4, 5}) {
    save(step);
    ASSERT_TRUE(send(upload_of(step)));
  }
  server_.put("run/step-2/PINNED", "");
  server_.put("run/step-0/rank-00000.safetensors", "rest of an interrupted upload");
  server_.put("run/notes.txt", "of a user");
  testing::write_file(folder_ / "step-4" / "PINNED", "");
  server_.forget_requests();
  save(6);
  ASSERT_TRUE(send(upload_of(6, {}, {3}), 1));
  std::vector<std::string> removed;
  for (const testing::SeenS3Request& seen : server_.requests())
    if (seen.method == "DELETE") removed.push_back(seen.target.substr(12));
  // Steps 2 and 4 are pinned, 3 is kept.
  EXPECT_THAT(removed,
              ElementsAre("step-6/SUPERSEDED", "step-5/manifest.json", "step-5/manifest.json",
                          "step-5/rank-00000.safetensors", "step-1/manifest.json", "step-1/manifest.json",
                          "step-1/rank-00000.safetensors", "step-0/manifest.json", "step-0/rank-00000.safetensors"));
  EXPECT_TRUE(server_.objects().contains("run/notes.txt"));
}

TEST_F(RemoteUploadTest, AbandonedOnesAreMarkedAndNotUsed) {
  for (const std::int64_t step : {10, 20, 30}) {
    save(step);
    ASSERT_TRUE(send(upload_of(step)));
  }
  save(15);
  ASSERT_TRUE(send(upload_of(15, {.from = 10, .saved = {15}})));
  RemoteStore store(kAddress, {}, false);
  std::vector<std::int64_t> usable;
  for (const RemoteCheckpoint& checkpoint : store.list())
    if (checkpoint.is_usable()) usable.push_back(checkpoint.step);
  EXPECT_THAT(usable, ElementsAre(15, 10));
}

TEST_F(RemoteUploadTest, AMissingOrDamagedObjectIsNamed) {
  save(7);
  ASSERT_TRUE(send(upload_of(7)));
  const std::string content = server_.objects().at("run/step-7/rank-00000.safetensors");
  const auto failure = [&]() -> std::string {
    try {
      (void)fetched(7);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt);
      EXPECT_FALSE(fs::exists(folder_ / "fetched" / "step-7"));
      return error.what();
    }
    return "(fetched)";
  };
  server_.erase("run/step-7/rank-00000.safetensors");
  EXPECT_THAT(failure(), HasSubstr("step-7/rank-00000.safetensors has no such object"));
  server_.put("run/step-7/rank-00000.safetensors", content.substr(1));
  EXPECT_THAT(failure(), HasSubstr("the manifest names"));
  std::string damaged = content;
  damaged.back() ^= 1;
  server_.put("run/step-7/rank-00000.safetensors", damaged);
  EXPECT_THAT(failure(), HasSubstr("rank-00000.safetensors"));
  server_.put("run/step-7/manifest.json", "{}");
  EXPECT_THAT(failure(), HasSubstr("manifest.json"));
}

TEST_F(RemoteUploadTest, AStorageThatIsDownIsAskedAgain) {
  save(7);
  server_.stop();
  RemoteUploader uploader(kAddress, {.first_pause = 0.1});
  uploader.add(upload_of(7));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(uploader.in_flight(), 7);
  server_.start();
  uploader.finish(20);
  EXPECT_FALSE(uploader.in_flight());
  EXPECT_EQ(keys().size(), 2u);
}

TEST_F(RemoteUploadTest, WhatHasNotArrivedInTimeIsNamed) {
  save(7);
  save(8);
  server_.set({.error = "ExpiredToken"});
  RemoteUploader uploader(kAddress, {.first_pause = 0.1});
  uploader.add(upload_of(7));
  uploader.add(upload_of(8));
  try {
    uploader.finish(0.5);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_THAT(error.what(), HasSubstr("step-7, step-8 did not arrive in s3://models/run"));
    EXPECT_THAT(error.what(), HasSubstr("has expired"));
    EXPECT_THAT(error.what(), ::testing::Not(HasSubstr(S3Server::kSecret)));
  }
}

}  // namespace
}  // namespace quench
