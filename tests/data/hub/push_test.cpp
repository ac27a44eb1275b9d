// Uploads to a server that speaks the hub's interface.

#include "data/hub/push.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "core/system/check.h"
#include "data/hub/base64.h"
#include "tests/hub_server/hub_server.h"
#include "tests/testing.h"

namespace quench::hub {
namespace {

using quench::testing::Behaviour;
using quench::testing::HubServer;
using quench::testing::SeenRequest;
using quench::testing::TempDir;
using quench::testing::write_file;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class HubPush : public ::testing::Test {
 protected:
  void SetUp() override {
    behaviour_.token = "hf_verysecret";
    server_.set(behaviour_);
    settings_.endpoint = server_.endpoint();
    settings_.token = Token(behaviour_.token, "HF_TOKEN");
    settings_.first_retry_seconds = 0.01;
    write_file(folder_ / "config.json", "{}");
    write_file(folder_ / "model.safetensors", weights_);
  }

  PushResult send(const std::string& name = "hf:me/model", const PushOptions& options = {}) {
    return push(settings_, parse_hub_name(name), folder_.path(), {"config.json", "model.safetensors"}, options);
  }

  std::string failure(ErrorCode code, const std::string& name = "hf:me/model") {
    try {
      (void)send(name);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(), Not(HasSubstr("hf_verysecret")));
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return {};
  }

  std::size_t requests_to(const std::string& part, const std::string& method) const {
    return static_cast<std::size_t>(std::ranges::count_if(server_.requests(), [&](const SeenRequest& seen) {
      return seen.method == method && seen.path.find(part) != std::string::npos;
    }));
  }

  std::string weights_ = std::string(100'000, 'w') + "end";
  Behaviour behaviour_;
  HubServer server_;
  TempDir folder_;
  HubSettings settings_;
};

TEST_F(HubPush, RepositoryIsMadeAndGetsTheFilesInOneCommit) {
  PushOptions options;
  options.is_private = true;
  options.message = "First export";
  const PushResult result = send("hf:me/model", options);
  EXPECT_TRUE(result.new_repository);
  EXPECT_THAT(result.sent, ElementsAre("config.json", "model.safetensors"));
  EXPECT_TRUE(server_.is_private("me/model"));
  EXPECT_EQ(server_.last_message("me/model"), "First export");
  EXPECT_EQ(result.commit, server_.commit("me/model"));
  EXPECT_EQ(result.url, server_.endpoint() + "/me/model/commit/" + result.commit);
  const auto files = server_.files("me/model");
  EXPECT_EQ(files.at("config.json").content, "{}");
  EXPECT_FALSE(files.at("config.json").is_lfs);
  EXPECT_EQ(files.at("model.safetensors").content, weights_);
  EXPECT_TRUE(files.at("model.safetensors").is_lfs);
  EXPECT_EQ(files.count(".gitattributes"), 1U);  // files of the repository stay
}

TEST_F(HubPush, PublicRepositoriesAreRefusedWhereAPrivateOneIsAskedFor) {
  behaviour_.public_only = true;
  server_.set(behaviour_);
  PushOptions options;
  options.is_private = true;
  for (const char* made : {"now", "before"}) {
    try {
      (void)send("hf:me/model", options);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("nothing was uploaded")) << made;
    }
  }
  EXPECT_EQ(requests_to("/content/", "PUT") + requests_to("/commit/", "POST"), 0U);
  (void)send();
  EXPECT_EQ(server_.files("me/model").count("model.safetensors"), 1U);
}

TEST_F(HubPush, SecondPushSendsNothing) {
  (void)send();
  server_.forget_requests();
  const std::string before = server_.commit("me/model");
  const PushResult result = send();
  EXPECT_THAT(result.sent, IsEmpty());
  EXPECT_THAT(result.unchanged, ElementsAre("config.json", "model.safetensors"));
  EXPECT_EQ(server_.commit("me/model"), before);
  EXPECT_EQ(requests_to("/content/", "PUT") + requests_to("/commit/", "POST"), 0U);
}

TEST_F(HubPush, ChangedFileAloneIsSent) {
  (void)send();
  write_file(folder_ / "config.json", "{\"a\": 1}");
  server_.forget_requests();
  EXPECT_THAT(send().sent, ElementsAre("config.json"));
  EXPECT_EQ(requests_to("/content/", "PUT"), 0U);
  EXPECT_EQ(server_.files("me/model").at("config.json").content, "{\"a\": 1}");
}

TEST_F(HubPush, ContentsThatTheStorageHasAreNotSentAgain) {
  // A push that was stopped before its commit.
  server_.set_files("other/model", {{"model.safetensors", {weights_, true}}});
  const PushResult result = send();
  EXPECT_THAT(result.sent, ElementsAre("config.json", "model.safetensors"));
  EXPECT_EQ(requests_to("/content/", "PUT"), 0U);
  EXPECT_EQ(server_.files("me/model").at("model.safetensors").content, weights_);
}

TEST_F(HubPush, EmptyFilesAreNoLargeFiles) {
  write_file(folder_ / "model.safetensors", "");
  (void)send();
  EXPECT_FALSE(server_.files("me/model").at("model.safetensors").is_lfs);
  EXPECT_EQ(server_.files("me/model").at("model.safetensors").content, "");
}

TEST_F(HubPush, LargeFilesGoInParts) {
  behaviour_.part_bytes = 30'000;
  server_.set(behaviour_);
  (void)send();
  EXPECT_EQ(requests_to("/content/", "PUT"), 4U);
  EXPECT_EQ(server_.files("me/model").at("model.safetensors").content, weights_);
}

TEST_F(HubPush, FailingServersAreAskedAgain) {
  behaviour_.busy = 2;
  behaviour_.failing = 2;
  server_.set(behaviour_);
  (void)send();
  EXPECT_EQ(server_.files("me/model").at("model.safetensors").content, weights_);
}

TEST_F(HubPush, TokenIsNotSentToTheStorage) {
  (void)send();
  std::size_t at_storage = 0;
  for (const SeenRequest& seen : server_.requests()) {
    at_storage += seen.at_storage ? 1 : 0;
    EXPECT_EQ(seen.authorization, seen.at_storage ? "" : "Bearer hf_verysecret") << seen.path;
  }
  EXPECT_EQ(at_storage, 1U);
}

TEST_F(HubPush, BranchesAndPullRequests) {
  (void)send();
  write_file(folder_ / "config.json", "{\"branch\": 1}");
  (void)send("hf:me/model@int4");
  EXPECT_EQ(server_.files("me/model", "int4").at("config.json").content, "{\"branch\": 1}");
  EXPECT_EQ(server_.files("me/model").at("config.json").content, "{}");
  PushOptions options;
  options.as_request = true;
  EXPECT_EQ(send("hf:me/model", options).url, server_.endpoint() + "/me/model/discussions/1");
  EXPECT_EQ(server_.files("me/model").at("config.json").content, "{}");
  EXPECT_EQ(server_.files("me/model", "refs/pr/1").at("config.json").content, "{\"branch\": 1}");
}

TEST_F(HubPush, RefusalsSayWhatToDo) {
  EXPECT_THAT(failure(ErrorCode::bad_config, "hf:model"), HasSubstr("hf:ORG/NAME"));
  EXPECT_THAT(failure(ErrorCode::bad_config, "hf:me/model@0123456789abcdef0123456789abcdef01234567"),
              HasSubstr("goes to a branch"));
  behaviour_.token = "another";
  server_.set(behaviour_);
  EXPECT_THAT(failure(ErrorCode::failed), HasSubstr("valid access token"));
  settings_.token = Token();
  server_.forget_requests();
  EXPECT_THAT(failure(ErrorCode::bad_config), HasSubstr("needs an access token"));
  EXPECT_THAT(server_.requests(), IsEmpty());
}

TEST_F(HubPush, StopLeavesTheRepositoryAsItWas) {
  (void)send();
  const std::string before = server_.commit("me/model");
  write_file(folder_ / "config.json", "other");
  PushOptions options;
  options.stop = [] { return 2; };
  EXPECT_THROW((void)send("hf:me/model", options), Stopped);
  EXPECT_EQ(server_.commit("me/model"), before);
}

TEST(HubBase64, PadsAsRfc4648) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
}

}  // namespace
}  // namespace quench::hub
