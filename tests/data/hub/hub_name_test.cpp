// Names of repositories, settings of the environment, the cache's layout, lists of files.

#include <gmock/gmock.h>

#include "core/system/check.h"
#include "data/hub/cache.h"
#include "data/hub/file_choice.h"
#include "data/hub/hub_name.h"
#include "data/hub/listing.h"
#include "data/hub/settings.h"
#include "tests/data/hub/environment.h"
#include "tests/testing.h"

namespace quench::hub {
namespace {

using quench::testing::HubEnvironment;
using quench::testing::TempDir;
using quench::testing::write_file;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

template <class F>
std::string message_of(F&& call, ErrorCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(HubName, IsReadWithRevisionAndType) {
  const HubName model = parse_hub_name("hf:HuggingFaceTB/SmolLM2-135M");
  EXPECT_EQ(model.type, RepoType::model);
  EXPECT_EQ(model.id, "HuggingFaceTB/SmolLM2-135M");
  EXPECT_EQ(model.revision, "main");
  const HubName data = parse_hub_name("hf:datasets/tatsu-lab/alpaca@refs/pr/3");
  EXPECT_EQ(data.type, RepoType::dataset);
  EXPECT_EQ(data.id, "tatsu-lab/alpaca");
  EXPECT_EQ(data.revision, "refs/pr/3");
  EXPECT_EQ(parse_hub_name("gpt2").id, "gpt2");
  for (const std::string text : {"hf:a/b", "hf:datasets/a/b", "hf:a/b@v1.0", "hf:gpt2"})
    EXPECT_EQ(parse_hub_name(text).text(), text);
}

TEST(HubName, MalformedOnesAreRefusedWithTheForm) {
  for (const std::string text :
       {"hf:", "hf:/b", "hf:a/", "hf:a/b/c", "hf:../b", "hf:a/..", "hf:a/.b", "hf:a b/c", "hf:a/b@", "hf:a/b@../x",
        "hf:a/b@x y", "hf:a/b@-x", "hf:a/b\n", "hf:a--b/c", "hf:a/b@x//y"}) {
    EXPECT_THAT(message_of([&] { (void)parse_hub_name(text); }, ErrorCode::bad_config), HasSubstr("hf:ORG/NAME"))
        << text;
    EXPECT_FALSE(find_hub_name(text)) << text;
  }
  EXPECT_FALSE(find_hub_name("a/b"));
  EXPECT_THAT(message_of([] { (void)require_repo_type("space", "--repo-type"); }, ErrorCode::bad_config),
              HasSubstr("known: model, dataset"));
}

TEST(HubSettings, TokenComesFromVariableThenFile) {
  const HubEnvironment environment;
  TempDir home;
  environment.set("HF_HOME", home.path());
  EXPECT_TRUE(HubSettings::from_environment().token.empty());
  write_file(home / "token", "hf_stored\n");
  EXPECT_EQ(HubSettings::from_environment().token.header(), "Authorization: Bearer hf_stored");
  write_file(home / "elsewhere", "hf_elsewhere");
  environment.set("HF_TOKEN_PATH", home / "elsewhere");
  EXPECT_EQ(HubSettings::from_environment().token.header(), "Authorization: Bearer hf_elsewhere");
  environment.set("HF_TOKEN", " hf_variable ");
  const HubSettings settings = HubSettings::from_environment();
  EXPECT_EQ(settings.token.header(), "Authorization: Bearer hf_variable");
  EXPECT_EQ(settings.token.source(), "HF_TOKEN");
  EXPECT_EQ(settings.cache, home / "hub");
  EXPECT_TRUE(HubSettings::from_environment(false).token.empty());
}

TEST(HubSettings, TokenOfSeveralWordsIsRefusedWithoutBeingShown) {
  const HubEnvironment environment;
  environment.set("HF_TOKEN", "hf_secret\nX-Header: 1");
  const std::string message = message_of([] { (void)HubSettings::from_environment(); }, ErrorCode::bad_config);
  EXPECT_THAT(message, HasSubstr("HF_TOKEN"));
  EXPECT_THAT(message, Not(HasSubstr("hf_secret")));
}

TEST(HubSettings, EndpointAndCacheAreHonoured) {
  const HubEnvironment environment;
  environment.set("HF_ENDPOINT", "http://localhost:8080/");
  environment.set("HF_HUB_CACHE", "/data/cache");
  environment.set("HF_HUB_OFFLINE", "1");
  const HubSettings settings = HubSettings::from_environment();
  EXPECT_EQ(settings.endpoint, "http://localhost:8080");
  EXPECT_EQ(settings.cache, "/data/cache");
  EXPECT_TRUE(settings.offline);
  environment.set("HF_ENDPOINT", "https://user:hf_secret@hub.example");
  EXPECT_THAT(message_of([] { (void)HubSettings::from_environment(); }, ErrorCode::bad_config),
              Not(HasSubstr("hf_secret")));
}

TEST(HubSettings, TokenIsNotSentInPlainTextBeyondThisMachine) {
  HubSettings settings;
  for (const std::string endpoint :
       {"https://huggingface.co", "http://localhost:1", "http://127.0.0.1:1/a", "http://[::1]:1"}) {
    settings.endpoint = endpoint;
    EXPECT_TRUE(settings.may_send_token()) << endpoint;
  }
  for (const std::string endpoint : {"http://hub.example", "http://127.0.0.1.example", "http://localhost.example:80"}) {
    settings.endpoint = endpoint;
    EXPECT_FALSE(settings.may_send_token()) << endpoint;
  }
}

TEST(HubCache, NameStandsForItsSnapshot) {
  const HubEnvironment environment;
  TempDir cache;
  environment.set("HF_HUB_CACHE", cache.path());
  EXPECT_EQ(local_path("hf:a/b"), "hf:a/b");
  const std::filesystem::path repo = cache / "models--a--b";
  const std::filesystem::path snapshot = repo / "snapshots" / kCommit;
  std::filesystem::create_directories(snapshot);
  std::filesystem::create_directories(repo / "refs");
  write_file(repo / "refs" / "main", kCommit);
  EXPECT_EQ(local_path("hf:a/b"), snapshot);
  EXPECT_EQ(local_path(std::string("hf:a/b@") + kCommit), snapshot);
  EXPECT_EQ(local_path("hf:a/b@v2"), "hf:a/b@v2");
  EXPECT_EQ(local_path("hf:datasets/a/b"), "hf:datasets/a/b");
  EXPECT_EQ(local_path("a/b"), "a/b");
  // A ref that leads elsewhere is none.
  write_file(repo / "refs" / "main", "../../..");
  EXPECT_EQ(local_path("hf:a/b"), "hf:a/b");
}

std::string tree(const std::string& path, const std::string& oid = kCommit) {
  return R"([{"type": "file", "path": ")" + path + R"(", "size": 1, "oid": ")" + oid + R"("}])";
}

TEST(HubListing, HostileNamesAndDigestsAreRefused) {
  std::vector<HubFile> files;
  for (const std::string path :
       {"../a", "a/../b", "/etc/passwd", "a//b", "./a", "a/", "", "a\\\\b", "a\\nb", "a\\u001b[2Jb",
        ".git/hooks/post-checkout", "x/.GIT/config", ".cache/huggingface/x", "a/\\u202eb"})
    EXPECT_THAT(message_of([&] { read_tree_page(tree(path), "list", files); }, ErrorCode::corrupt),
                HasSubstr("refused"))
        << path;
  EXPECT_THAT(message_of([&] { read_tree_page(tree(std::string(300, 'a')), "list", files); }, ErrorCode::corrupt),
              HasSubstr("more than"));
  for (const std::string oid :
       {"../../../../../../tmp/0123456789abcdef0123", "", "0123", "0123456789ABCDEF0123456789ABCDEF01234567"})
    EXPECT_THAT(message_of([&] { read_tree_page(tree("a", oid), "list", files); }, ErrorCode::corrupt),
                HasSubstr("digest"));
  for (const std::string text : {"{}", "[1]", "[{}]", "nonsense", R"([{"type": "file"}])",
                                 R"([{"type": "file", "path": "a", "size": -1, "oid": ""}])"})
    (void)message_of([&] { read_tree_page(text, "list", files); }, ErrorCode::corrupt);
  EXPECT_TRUE(files.empty());
  read_tree_page(tree("sub/model.safetensors"), "list", files);
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files[0].etag(), kCommit);
}

TEST(HubListing, SamePathTwiceIsRefused) {
  const HubFile a{.path = "a", .size = 1, .git_oid = kCommit}, below{.path = "a/b", .size = 1, .git_oid = kCommit};
  require_distinct({a}, "list");
  EXPECT_THAT(message_of([&] { require_distinct({a, a}, "list"); }, ErrorCode::corrupt), HasSubstr("twice"));
  EXPECT_THAT(message_of([&] { require_distinct({below, a}, "list"); }, ErrorCode::corrupt), HasSubstr("as a folder"));
}

TEST(HubListing, NextPageIsAPathOfTheSameHost) {
  EXPECT_EQ(next_page(R"(<https://huggingface.co/api/x?cursor=1>; rel="next")"), "/api/x?cursor=1");
  EXPECT_EQ(next_page(R"(</api/y>; rel="prev", <https://other.example/api/z>; rel="next")"), "/api/z");
  for (const std::string link :
       {"", "nonsense", "<https://a.example>; rel=\"next\"", "<a", R"(<https://a/b>; rel="last")"})
    EXPECT_EQ(next_page(link), "") << link;
}

std::vector<HubFile> files_of(const std::vector<std::string>& paths) {
  std::vector<HubFile> files;
  for (const std::string& path : paths) files.push_back({.path = path, .size = 1, .git_oid = kCommit});
  return files;
}

std::vector<std::string> paths_of(const std::vector<HubFile>& files) {
  std::vector<std::string> paths;
  for (const HubFile& file : files) paths.push_back(file.path);
  return paths;
}

TEST(HubFileChoice, SafetensorsReplaceOtherWeights) {
  const HubName name = parse_hub_name("a/b");
  const auto files = files_of({"config.json", "model.safetensors", "onnx/model.onnx", "original/params.json",
                               "pytorch_model.bin", "tf_model.h5", "tokenizer.json"});
  const FileChoice choice = choose_files(files, name, {});
  EXPECT_THAT(paths_of(choice.files), ElementsAre("config.json", "model.safetensors", "tokenizer.json"));
  ASSERT_EQ(choice.left_out.size(), 4U);
  EXPECT_EQ(choice.left_out[2].first, "PyTorch");
  EXPECT_THAT(paths_of(choose_files(files, name, {.include = {"*"}}).files), ::testing::SizeIs(7));
  EXPECT_THAT(paths_of(choose_files(files, name, {.include = {"*.json"}, .exclude = {"original/"}}).files),
              ElementsAre("config.json", "tokenizer.json"));
  // Without safetensors the other weights are what there is.
  EXPECT_THAT(paths_of(choose_files(files_of({"config.json", "pytorch_model.bin"}), name, {}).files),
              ElementsAre("config.json", "pytorch_model.bin"));
}

TEST(HubFileChoice, SeveralGgufModelsAskForAChoice) {
  const HubName name = parse_hub_name("a/b");
  EXPECT_THAT(message_of(
                  [&] {
                    (void)choose_files(files_of({"m.Q4_K_M.gguf", "m.Q8_0.gguf"}), name, {});
                  },
                  ErrorCode::bad_config),
              HasSubstr("--include"));
  EXPECT_THAT(paths_of(choose_files(files_of({"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}), name, {}).files),
              ::testing::SizeIs(2));
  EXPECT_THAT(
      message_of([&] { (void)choose_files(files_of({"a.txt"}), name, {.include = {"*.bin"}}); }, ErrorCode::bad_config),
      HasSubstr("matches --include"));
}

}  // namespace
}  // namespace quench::hub
