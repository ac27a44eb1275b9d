// Downloads from a server that speaks the hub's interface.

#include "data/hub/pull.h"

#include <gmock/gmock.h>

#include <sys/file.h>

#include <fcntl.h>

#include <algorithm>
#include <thread>

#include "core/system/check.h"
#include "data/hub/cache.h"
#include "tests/hub_server/hub_server.h"
#include "tests/testing.h"

namespace quench::hub {
namespace {

namespace fs = std::filesystem;
using quench::testing::Behaviour;
using quench::testing::HubServer;
using quench::testing::read_file;
using quench::testing::SeenRequest;
using quench::testing::ServedFile;
using quench::testing::sha256_of;
using quench::testing::TempDir;
using quench::testing::write_file;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kRepo = "org/model";
constexpr const char* kToken = "hf_verysecret";

// Bytes without repetition.
std::string weights(std::size_t bytes) {
  std::string text(bytes, '\0');
  std::uint32_t state = 1;
  for (char& c : text) c = static_cast<char>((state = state * 1664525U + 1013904223U) >> 24);
  return text;
}

class HubPull : public ::testing::Test {
 protected:
  void SetUp() override {
    server_.set_files(kRepo, files_);
    settings_.endpoint = server_.endpoint();
    settings_.cache = folder_ / "cache";
    settings_.first_retry_seconds = 0.01;
  }

  PullResult fetch(const std::string& name = "hf:org/model", const PullOptions& options = {}) {
    const PullPlan plan = plan_pull(settings_, parse_hub_name(name), options);
    return pull(settings_, plan, options);
  }

  std::string failure(ErrorCode code, const std::string& name = "hf:org/model", const PullOptions& options = {}) {
    try {
      (void)fetch(name, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(), Not(HasSubstr(kToken)));
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return {};
  }

  std::size_t content_requests() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(server_.requests(), [](const SeenRequest& seen) { return seen.at_storage; }));
  }

  void expect_files(const fs::path& folder) const {
    for (const auto& [path, file] : files_) EXPECT_EQ(read_file(folder / path), file.content) << path;
  }

  std::map<std::string, ServedFile> files_ = {{"config.json", {"{\"model_type\": \"llama\"}", false}},
                                              {"empty", {"", false}},
                                              {"sub/notes.txt", {"notes", false}},
                                              {"model.safetensors", {weights(500'000), true}}};
  HubServer server_;
  TempDir folder_;
  HubSettings settings_;
};

TEST_F(HubPull, FilesAreInTheStandardLayoutOfTheCache) {
  const PullResult result = fetch();
  const fs::path repo = settings_.cache / "models--org--model";
  const std::string commit = server_.commit(kRepo);
  EXPECT_EQ(result.folder, repo / "snapshots" / commit);
  EXPECT_EQ(read_file(repo / "refs" / "main"), commit);
  expect_files(result.folder);
  const fs::path link = result.folder / "model.safetensors";
  EXPECT_EQ(fs::read_symlink(link), fs::path("../../blobs") / sha256_of(files_["model.safetensors"].content));
  EXPECT_EQ(fs::read_symlink(result.folder / "sub" / "notes.txt"),
            fs::path("../../../blobs") / quench::testing::git_blob_of("notes"));
  EXPECT_EQ(cached_snapshot(settings_.cache, parse_hub_name("hf:org/model")), result.folder);
  EXPECT_EQ(result.fetched_files, 4U);
  // Nothing is fetched twice.
  server_.forget_requests();
  EXPECT_EQ(fetch().fetched_files, 0U);
  EXPECT_EQ(server_.requests().size(), 2U);
}

TEST_F(HubPull, NewCommitFetchesWhatChangedOnly) {
  (void)fetch();
  const std::string before = server_.commit(kRepo);
  files_["sub/notes.txt"].content = "other notes";
  server_.set_files(kRepo, files_);
  const PullResult result = fetch();
  EXPECT_EQ(result.fetched_files, 1U);
  expect_files(result.folder);
  EXPECT_EQ(read_file(settings_.cache / "models--org--model" / "snapshots" / before / "sub" / "notes.txt"), "notes");
}

TEST_F(HubPull, RevisionsHaveTheirOwnRefs) {
  server_.set_files(kRepo, {{"config.json", {"{}", false}}}, "v2");
  const PullResult result = fetch("hf:org/model@v2");
  EXPECT_EQ(read_file(result.folder / "config.json"), "{}");
  EXPECT_EQ(read_file(settings_.cache / "models--org--model" / "refs" / "v2"), server_.commit(kRepo, "v2"));
  EXPECT_FALSE(fs::exists(settings_.cache / "models--org--model" / "refs" / "main"));
  const PullResult pinned = fetch("hf:org/model@" + server_.commit(kRepo));
  expect_files(pinned.folder);
  EXPECT_THAT(failure(ErrorCode::not_found, "hf:org/model@v3"), HasSubstr("no branch, tag or commit \"v3\""));
}

TEST_F(HubPull, ListOfSeveralPagesIsReadWhole) {
  Behaviour behaviour;
  behaviour.page = 1;
  server_.set(behaviour);
  expect_files(fetch().folder);
}

TEST_F(HubPull, BrokenConnectionIsContinuedWhereItBroke) {
  Behaviour behaviour;
  behaviour.cut = 2;
  behaviour.cut_after = 200'000;
  server_.set(behaviour);
  PullOptions options;
  options.patterns.include = {"*.safetensors"};
  const PullResult result = fetch("hf:org/model", options);
  EXPECT_EQ(read_file(result.folder / "model.safetensors"), files_["model.safetensors"].content);
  EXPECT_EQ(result.fetched_bytes, 500'000U);  // no byte twice
  std::vector<std::string> ranges;
  for (const SeenRequest& seen : server_.requests())
    if (seen.at_storage) ranges.push_back(seen.range);
  EXPECT_THAT(ranges, ::testing::ElementsAre("", "bytes=200000-", "bytes=400000-"));
}

TEST_F(HubPull, PartOfAnEarlierProcessIsContinued) {
  const std::string& content = files_["model.safetensors"].content;
  const fs::path part = settings_.cache / "models--org--model" / "blobs" / (sha256_of(content) + ".incomplete");
  fs::create_directories(part.parent_path());
  write_file(part, content.substr(0, 300'000));
  const PullResult result = fetch();
  expect_files(result.folder);
  EXPECT_LT(result.fetched_bytes, 210'000U);
  EXPECT_FALSE(fs::exists(part));
}

TEST_F(HubPull, PartOfOtherContentIsStartedAgain) {
  const std::string& content = files_["model.safetensors"].content;
  const fs::path part = settings_.cache / "models--org--model" / "blobs" / (sha256_of(content) + ".incomplete");
  fs::create_directories(part.parent_path());
  for (const std::size_t bytes : {std::size_t{1000}, content.size(), content.size() + 1}) {
    write_file(part, std::string(bytes, 'x'));
    const PullResult result = fetch();
    expect_files(result.folder);
    fs::remove_all(settings_.cache / "models--org--model" / "snapshots");
    fs::remove(part.parent_path() / sha256_of(content));
  }
}

TEST_F(HubPull, ServerWithoutRangesSendsTheWholeFileAgain) {
  Behaviour behaviour;
  behaviour.cut = 1;
  behaviour.cut_after = 100'000;
  behaviour.ranges = false;
  server_.set(behaviour);
  PullOptions options;
  options.patterns.include = {"*.safetensors"};
  EXPECT_EQ(read_file(fetch("hf:org/model", options).folder / "model.safetensors"),
            files_["model.safetensors"].content);
}

TEST_F(HubPull, WrongDigestIsAnErrorAndLeavesNothing) {
  Behaviour behaviour;
  behaviour.corrupt = true;
  server_.set(behaviour);
  PullOptions options;
  options.patterns.include = {"*.safetensors"};
  EXPECT_THAT(failure(ErrorCode::corrupt, "hf:org/model", options),
              AllOf(HasSubstr("has the digest"), HasSubstr("the hub lists")));
  const fs::path repo = settings_.cache / "models--org--model";
  EXPECT_FALSE(fs::exists(repo / "refs" / "main"));
  for (const fs::directory_entry& blob : fs::directory_iterator(repo / "blobs"))
    EXPECT_EQ(blob.file_size(), 0U) << blob.path();
  server_.set({});
  expect_files(fetch().folder);
}

TEST_F(HubPull, TokenGoesToTheHubAndNotToItsContentNetwork) {
  settings_.token = Token(kToken, "HF_TOKEN");
  Behaviour behaviour;
  behaviour.token = kToken;
  server_.set(behaviour);
  expect_files(fetch().folder);
  std::size_t at_hub = 0, at_storage = 0;
  for (const SeenRequest& seen : server_.requests()) {
    if (seen.at_storage) {
      ++at_storage;
      EXPECT_EQ(seen.authorization, "");
    } else {
      ++at_hub;
      EXPECT_EQ(seen.authorization, std::string("Bearer ") + kToken);
    }
  }
  EXPECT_GT(at_hub, 3U);
  EXPECT_EQ(at_storage, 1U);
}

TEST_F(HubPull, BusyAndFailingServersAreAskedAgain) {
  Behaviour behaviour;
  behaviour.busy = 3;
  behaviour.failing = 2;
  server_.set(behaviour);
  expect_files(fetch().folder);
  behaviour.failing = 1000;
  server_.set(behaviour);
  server_.forget_requests();
  settings_.retries = 2;
  EXPECT_THAT(failure(ErrorCode::io), AllOf(HasSubstr("given up after 3 attempts")));
  EXPECT_EQ(server_.requests().size(), 3U);
}

TEST_F(HubPull, RefusalsSayWhatToDo) {
  EXPECT_THAT(failure(ErrorCode::not_found, "hf:org/absent"), AllOf(HasSubstr("has no such model, or it is private"),
                                                                    HasSubstr("HF_TOKEN"), HasSubstr("hf:datasets/")));
  Behaviour behaviour;
  behaviour.gated = true;
  server_.set(behaviour);
  EXPECT_THAT(failure(ErrorCode::failed), AllOf(HasSubstr("gated"), HasSubstr(server_.endpoint() + "/org/model"),
                                                HasSubstr("no access token is set")));
  settings_.token = Token(kToken, "HF_TOKEN");
  behaviour.error_message = std::string("not for ") + kToken;
  server_.set(behaviour);
  EXPECT_THAT(failure(ErrorCode::failed),
              AllOf(HasSubstr("accept its terms"), HasSubstr("access token of HF_TOKEN was sent"),
                    HasSubstr("not for (token)")));
  behaviour.gated = false;
  behaviour.token = "another";
  server_.set(behaviour);
  EXPECT_THAT(failure(ErrorCode::failed), HasSubstr("asks for a valid access token"));
}

TEST_F(HubPull, UnreachableHubFailsAtOnce) {
  settings_.endpoint = "http://127.0.0.1:1";
  settings_.first_retry_seconds = 100;
  EXPECT_THAT(failure(ErrorCode::io), HasSubstr("check the network"));
}

TEST_F(HubPull, HostileNamesWriteNothing) {
  Behaviour behaviour;
  behaviour.extra_entry =
      R"({"type": "file", "path": "../../../../escaped", "size": 1, "oid": "0123456789abcdef0123456789abcdef01234567"})";
  server_.set(behaviour);
  EXPECT_THAT(failure(ErrorCode::corrupt), HasSubstr("refused"));
  EXPECT_FALSE(fs::exists(settings_.cache));
}

TEST_F(HubPull, LongerContentThanListedIsRefused) {
  Behaviour behaviour;
  behaviour.extra_entry = fmt::format(
      R"({{"type": "file", "path": "model.safetensors", "size": 10, "oid": "{}", "lfs": {{"oid": "{}", "size": 10}}}})",
      std::string(40, 'a'), std::string(64, 'b'));
  files_.erase("model.safetensors");
  server_.set_files(kRepo, files_);
  server_.set(behaviour);
  EXPECT_THAT(failure(ErrorCode::not_found), HasSubstr("there is no file model.safetensors"));
}

TEST_F(HubPull, FolderTakesPlainFiles) {
  PullOptions options;
  options.folder = folder_ / "model";
  EXPECT_EQ(fetch("hf:org/model", options).folder, options.folder);
  expect_files(options.folder);
  EXPECT_FALSE(fs::is_symlink(options.folder / "model.safetensors"));
  EXPECT_EQ(fetch("hf:org/model", options).fetched_files, 0U);
  EXPECT_FALSE(fs::exists(settings_.cache));
}

TEST_F(HubPull, FilesOfOtherContentInAFolderAreKept) {
  PullOptions options;
  options.folder = folder_ / "model";
  fs::create_directories(options.folder);
  write_file(options.folder / "config.json", "mine");
  EXPECT_THAT(failure(ErrorCode::bad_config, "hf:org/model", options),
              AllOf(HasSubstr("config.json"), HasSubstr("--overwrite")));
  EXPECT_EQ(read_file(options.folder / "config.json"), "mine");
  EXPECT_EQ(content_requests(), 0U);
  options.overwrite = true;
  (void)fetch("hf:org/model", options);
  expect_files(options.folder);
}

TEST_F(HubPull, LinksInAFolderAreNotFollowed) {
  PullOptions options;
  options.folder = folder_ / "model";
  options.overwrite = true;
  fs::create_directories(options.folder);
  fs::create_directories(folder_ / "outside");
  fs::create_symlink(folder_ / "outside", options.folder / "sub");
  EXPECT_THAT(failure(ErrorCode::bad_config, "hf:org/model", options), HasSubstr("is a link"));
  EXPECT_TRUE(fs::is_empty(folder_ / "outside"));
}

TEST_F(HubPull, WholeCacheIsNotWrittenTo) {
  (void)fetch();
  const fs::path ref = settings_.cache / "models--org--model" / "refs" / "main";
  const auto before = fs::last_write_time(ref);
  fs::remove_all(settings_.cache / ".locks");
  EXPECT_EQ(fetch().fetched_files, 0U);
  EXPECT_EQ(fs::last_write_time(ref), before);
  EXPECT_FALSE(fs::exists(settings_.cache / ".locks"));
}

TEST_F(HubPull, UnwritableCacheNamesAnother) {
  write_file(folder_ / "file", "");
  settings_.cache = folder_ / "file";
  EXPECT_THAT(failure(ErrorCode::io), AllOf(HasSubstr("HF_HUB_CACHE"), HasSubstr("--local-dir")));
}

TEST_F(HubPull, TooLittleSpaceIsFoundBeforeTheDownload) {
  PullPlan plan = plan_pull(settings_, parse_hub_name("hf:org/model"), {});
  plan.choice.files.front().size = std::uint64_t{1} << 49;
  server_.forget_requests();
  try {
    (void)pull(settings_, plan, {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::no_space);
    EXPECT_THAT(error.what(), HasSubstr("are free there"));
  }
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(HubPull, TwoAtOnceFetchEachFileOnce) {
  Behaviour behaviour;
  behaviour.chunk_pause_ms = 20;
  server_.set(behaviour);
  std::thread other([&] { expect_files(fetch().folder); });
  expect_files(fetch().folder);
  other.join();
  EXPECT_EQ(content_requests(), 1U);
}

TEST_F(HubPull, StopKeepsWhatHasArrived) {
  Behaviour behaviour;
  behaviour.chunk_pause_ms = 50;
  server_.set(behaviour);
  PullOptions options;
  options.patterns.include = {"*.safetensors"};
  std::uint64_t arrived = 0;
  options.progress = [&](std::uint64_t done, std::uint64_t) { arrived = done; };
  options.stop = [&] { return arrived > 100'000 ? 2 : 0; };
  EXPECT_THROW((void)fetch("hf:org/model", options), Stopped);
  const std::uint64_t before = server_.sent_bytes();
  EXPECT_LT(before, 450'000U);
  options.stop = nullptr;
  EXPECT_EQ(read_file(fetch("hf:org/model", options).folder / "model.safetensors"),
            files_["model.safetensors"].content);
  EXPECT_LT(server_.sent_bytes(), 600'000U);
}

TEST_F(HubPull, DataSetsHaveTheirOwnNames) {
  server_.set_files("datasets/org/data",
                    {{"train.jsonl", {"{\"text\": \"a\"}\n", false}}, {"weights.bin", {"b", false}}});
  const PullResult result = fetch("hf:datasets/org/data");
  EXPECT_EQ(read_file(result.folder / "train.jsonl"), "{\"text\": \"a\"}\n");
  EXPECT_TRUE(fs::exists(result.folder / "weights.bin"));
  EXPECT_TRUE(fs::exists(settings_.cache / "datasets--org--data" / "refs" / "main"));
}

}  // namespace
}  // namespace quench::hub
