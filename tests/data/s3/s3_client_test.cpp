// Objects and files of S3-compatible storage, and a storage that fails.

#include "data/s3/s3_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/s3_server/s3_environment.h"
#include "tests/testing.h"

namespace quench::s3 {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_file;
using testing::S3Behaviour;
using testing::S3Environment;
using testing::S3Server;
using testing::TempDir;
using testing::write_file;

constexpr std::uint64_t kPart = 100'000;

class S3ClientTest : public ::testing::Test {
 protected:
  S3Settings settings() const {
    S3Settings read = S3Settings::from_environment();
    read.http.first_retry_seconds = 0.01;
    read.http.idle_seconds = 2;
    read.part_bytes = kPart;
    return read;
  }
  S3Client client(hub::StopPoll stop = {}) const {
    return {settings(), parse_s3_url("s3://models/runs/a b+c"), std::move(stop)};
  }
  // File of several parts, the last one short.
  std::filesystem::path file() const {
    std::string content;
    for (std::uint32_t i = 0; content.size() < 4 * kPart + 77; ++i) content += std::to_string(i * 2654435761u);
    content.resize(4 * kPart + 77);
    write_file(folder_ / "file", content);
    return folder_ / "file";
  }
  void send(S3Client& to, const std::string& name) const {
    const auto path = file();
    to.send(name, path, digest_file(path, kPart, {}), {{"quench-save", "u-1"}});
  }
  template <class Work>
  static std::string failure(ErrorCode code, const Work& work) {
    try {
      work();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(), Not(HasSubstr(S3Server::kSecret)));
      return error.what();
    }
    return "(no failure)";
  }

  S3Server server_;
  S3Environment environment_{server_};
  TempDir folder_;
};

TEST_F(S3ClientTest, ObjectsAreWrittenListedReadAndRemoved) {
  S3Client storage = client();
  server_.set({.page = 2});
  for (const char* name : {"step-1/a&b", "step-1/b", "step-1/c", "step-2/a", "other"})
    storage.write(name, std::string("content of ") + name, {{"quench-save", "u"}});
  server_.put("runs/a b+cd", "not below the address");
  std::vector<std::string> names;
  for (const S3Object& object : storage.list("step-1/")) names.push_back(object.name);
  EXPECT_THAT(names, ElementsAre("step-1/a&b", "step-1/b", "step-1/c"));
  EXPECT_EQ(storage.list("").size(), 5u);
  EXPECT_EQ(storage.read("step-1/a&b", 100), "content of step-1/a&b");
  const auto info = storage.find("other");
  ASSERT_TRUE(info);
  EXPECT_EQ(info->bytes, 16u);
  EXPECT_EQ(info->metadata.at("quench-save"), "u");
  storage.remove("other");
  storage.remove("other");
  EXPECT_FALSE(storage.find("other"));
  EXPECT_THAT(failure(ErrorCode::not_found, [&] { (void)storage.read("other", 100); }),
              HasSubstr("s3://models/runs/a b+c/other: there is no such object"));
  EXPECT_THAT(failure(ErrorCode::corrupt, [&] { (void)storage.read("step-1/b", 5); }), HasSubstr("larger than 5"));
}

TEST_F(S3ClientTest, FilesArriveInPartsAndComeBack) {
  S3Client storage = client();
  send(storage, "file");
  const std::string sent = read_file(folder_ / "file");
  EXPECT_EQ(server_.objects().at("runs/a b+c/file"), sent);
  EXPECT_EQ(server_.open_uploads(), 0u);
  const auto info = storage.find("file");
  ASSERT_TRUE(info);
  EXPECT_EQ(info->digest(), digest_file(folder_ / "file", kPart, {}).stored());
  storage.fetch("file", *info, folder_ / "fetched");
  EXPECT_EQ(read_file(folder_ / "fetched"), sent);
}

TEST_F(S3ClientTest, FilesOfOtherProgramsComeInPartsToo) {
  const std::string content = read_file(file());
  server_.put("runs/a b+c/file", content);
  S3Client storage = client();
  const auto info = storage.find("file");
  ASSERT_TRUE(info);
  EXPECT_FALSE(info->digest());
  storage.fetch("file", *info, folder_ / "fetched");
  EXPECT_EQ(read_file(folder_ / "fetched"), content);
}

TEST_F(S3ClientTest, FailuresThatPassAreRepeated) {
  S3Client storage = client();
  server_.set({.failing = 2, .busy = 2});
  storage.write("a", "content", {});
  server_.set({.cut_uploads = 2});
  send(storage, "file");
  server_.set({.late_errors = 1});
  send(storage, "late");
  server_.set({.lost_completions = 1});
  send(storage, "lost");
  server_.set({.cut = 3});
  for (const char* name : {"file", "late", "lost"}) {
    const auto info = storage.find(name);
    ASSERT_TRUE(info);
    const auto path = folder_ / (std::string(name) + "-fetched");
    storage.fetch(name, *info, path);
    EXPECT_EQ(read_file(path), read_file(folder_ / "file"));
  }
}

TEST_F(S3ClientTest, AnUnknownTagOfAPartFailsTheUpload) {
  S3Client storage = client();
  server_.set({.wrong_tags = 1});
  EXPECT_THAT(failure(ErrorCode::io, [&] { send(storage, "file"); }), HasSubstr("InvalidPart"));
  EXPECT_EQ(server_.open_uploads(), 0u);
  EXPECT_TRUE(server_.objects().empty());
  send(storage, "file");
}

TEST_F(S3ClientTest, PartsOfAStoppedUploadAreRemovedByTheNext) {
  int asked = 0;
  server_.set({.read_pause_ms = 20});
  S3Client stopped = client([&] { return ++asked > 40 ? 7 : 0; });
  EXPECT_THROW(send(stopped, "file"), hub::Stopped);
  EXPECT_TRUE(server_.objects().empty());
  server_.set({});
  S3Client storage = client();
  send(storage, "file");
  EXPECT_EQ(server_.open_uploads(), 0u);
  EXPECT_EQ(server_.objects().size(), 1u);
}

TEST_F(S3ClientTest, ABucketOfAnotherRegionIsAskedThere) {
  server_.set({.region = "eu-south-2"});
  S3Client storage = client();
  storage.write("a", "content", {});
  send(storage, "file");
  EXPECT_EQ(server_.objects().size(), 2u);
}

TEST_F(S3ClientTest, TemporaryCredentialsSendTheirToken) {
  server_.set({.session = "token-of-the-session"});
  S3Client without = client();
  EXPECT_THAT(failure(ErrorCode::bad_config, [&] { without.write("a", "", {}); }), HasSubstr("renew it"));
  environment_.set("AWS_SESSION_TOKEN", "token-of-the-session");
  S3Client storage = client();
  send(storage, "file");
}

TEST_F(S3ClientTest, RefusalsSayWhatToDo) {
  S3Client storage = client();
  const auto write = [&] { storage.write("a", "content", {}); };
  server_.set({.error = "ExpiredToken"});
  EXPECT_THAT(failure(ErrorCode::bad_config, write),
              AllOf(HasSubstr("has expired"), HasSubstr("access key of AWS_ACCESS_KEY_ID")));
  server_.set({.error = "RequestTimeTooSkewed"});
  EXPECT_THAT(failure(ErrorCode::bad_config, write), HasSubstr("clock"));
  server_.set({.read_only = true});
  EXPECT_THAT(failure(ErrorCode::bad_config, write), HasSubstr("s3:PutObject"));
  server_.set({.error = "Strange"});
  EXPECT_THAT(failure(ErrorCode::io, write), HasSubstr("status 403, Strange"));
  server_.set({});
  S3Client elsewhere(settings(), parse_s3_url("s3://absent/x"), {});
  EXPECT_THAT(failure(ErrorCode::bad_config, [&] { (void)elsewhere.list(""); }), HasSubstr("no such bucket"));
  environment_.set("AWS_SECRET_ACCESS_KEY", "another");
  S3Client other = client();
  EXPECT_THAT(failure(ErrorCode::bad_config, [&] { (void)other.list(""); }), HasSubstr("secret of the access key"));
  environment_.set("AWS_ACCESS_KEY_ID", "another");
  S3Client unknown = client();
  EXPECT_THAT(failure(ErrorCode::bad_config, [&] { (void)unknown.list(""); }), HasSubstr("does not know"));
}

TEST_F(S3ClientTest, AChangedContentIsRefused) {
  S3Client storage = client();
  send(storage, "file");
  const auto info = storage.find("file");
  ASSERT_TRUE(info);
  server_.set({.corrupt = true});
  EXPECT_THAT(failure(ErrorCode::corrupt, [&] { storage.fetch("file", *info, folder_ / "fetched"); }),
              HasSubstr("SHA-256"));
}

TEST_F(S3ClientTest, AStorageThatStandsStillIsGivenUp) {
  server_.stop();
  S3Client storage = client();
  EXPECT_THAT(failure(ErrorCode::io, [&] { (void)storage.list(""); }), HasSubstr("AWS_ENDPOINT_URL_S3"));
}

TEST(S3Digest, PartsGrowWithTheFile) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  EXPECT_EQ(part_bytes_for(kMiB, 64 * kMiB), 64 * kMiB);
  EXPECT_EQ(part_bytes_for(1'000'000 * kMiB, 64 * kMiB), 100 * kMiB);
  EXPECT_LE((5'000'000 * kMiB) / part_bytes_for(5'000'000 * kMiB, 64 * kMiB), 10'000u);
}

TEST(S3Digest, OnePartHasTheDigestOfTheFile) {
  const TempDir folder;
  write_file(folder / "file", "abc");
  const FileDigest digest = digest_file(folder / "file", 100, {});
  EXPECT_EQ(digest.stored().sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest_file(folder / "file", 2, {}).parts.size(), 2u);
  write_file(folder / "empty", "");
  EXPECT_EQ(digest_file(folder / "empty", 2, {}).stored().sha256, sha256_of(""));
}

}  // namespace
}  // namespace quench::s3
