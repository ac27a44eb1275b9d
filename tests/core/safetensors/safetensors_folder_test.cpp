#include "core/safetensors/safetensors_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "core/json/json.h"
#include "tests/core/safetensors/safetensors_file.h"
#include "tests/core/system/file_size_limit.h"
#include "tests/testing.h"
#include "tests/train/metrics/captured_log.h"

namespace quench {
namespace {

using ::testing::ElementsAre;
using testing::files_in;
using ::testing::HasSubstr;
using testing::safetensors_file;

std::string one_byte(std::string_view tensor) {
  return safetensors_file(fmt::format(R"({{"{}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}})", tensor), 1);
}

std::string one_byte_each(const std::vector<std::string_view>& tensors) {
  std::string entries;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    entries += fmt::format(R"({}"{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})", i == 0 ? "" : ",",
                           tensors[i], i, i + 1);
  return safetensors_file("{" + entries + "}", tensors.size());
}

SafetensorsItem item(std::string name, std::string_view data) {
  return {.name = std::move(name),
          .dtype = DType::u8,
          .shape = {static_cast<std::int64_t>(data.size())},
          .data = std::as_bytes(std::span(data.data(), data.size()))};
}

std::string read_tensor(const SafetensorsFolder& folder, std::string_view name) {
  const auto location = folder.at(name);
  std::string bytes(location.entry->nbytes(), '\0');
  location.read(std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

// The message of the error that opening raises, after checking its code.
std::string error_of_opening(const std::filesystem::path& folder, ErrorCode code = ErrorCode::corrupt) {
  try {
    const SafetensorsFolder opened(folder);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
}

// A folder with two shards, a in s1 and b in s2, and an index with the given map.
class Sharded {
 public:
  explicit Sharded(std::string_view weight_map) {
    testing::write_file(folder_ / "s1.safetensors", one_byte("a"));
    testing::write_file(folder_ / "s2.safetensors", one_byte("b"));
    set_index(fmt::format(R"({{"metadata":{{"total_size":2}},"weight_map":{}}})", weight_map));
  }
  void set_index(std::string_view text) { testing::write_file(folder_ / std::string(kModelIndexName), text); }
  [[nodiscard]] const std::filesystem::path& path() const { return folder_.path(); }
  [[nodiscard]] std::string error(ErrorCode code = ErrorCode::corrupt) const { return error_of_opening(path(), code); }

 private:
  testing::TempDir folder_;
};

TEST(SafetensorsFolder, OpensASingleFile) {
  const testing::TempDir folder;
  testing::write_file(folder / "model.safetensors", one_byte("a"));
  const SafetensorsFolder model(folder.path());
  EXPECT_THAT(model.names(), ElementsAre("a"));
  EXPECT_EQ(model.total_bytes(), 1u);
  EXPECT_FALSE(model.find("b").has_value());
  EXPECT_EQ(model.at("a").entry->dtype, DType::u8);
  try {
    (void)model.at("b");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
    EXPECT_THAT(error.what(), HasSubstr(folder.path().string()));
  }
}

TEST(SafetensorsFolder, OpensShards) {
  const Sharded folder(R"({"b":"s2.safetensors","a":"s1.safetensors"})");
  SafetensorsFolder model(folder.path());
  EXPECT_THAT(model.names(), ElementsAre("a", "b"));
  EXPECT_EQ(model.files().size(), 2u);
  EXPECT_EQ(model.at("b").reader->path().filename(), "s2.safetensors");
  const SafetensorsFolder moved(std::move(model));
  EXPECT_EQ(read_tensor(moved, "b"), std::string(1, '\0'));
}

TEST(SafetensorsFolder, TheSingleFileComesBeforeTheIndexWithAWarning) {
  const Sharded folder(R"({"b":"s2.safetensors","a":"s1.safetensors"})");
  testing::write_file(folder.path() / "model.safetensors", one_byte("only"));
  const testing::CapturedLog log;
  EXPECT_THAT(SafetensorsFolder(folder.path()).names(), ElementsAre("only"));
  EXPECT_THAT(log.text(), HasSubstr("holds model.safetensors and model.safetensors.index.json: the weights of"));
}

TEST(SafetensorsFolder, FollowsSymbolicLinksToRegularFiles) {
  const Sharded folder(R"({"a":"s1.safetensors","b":"s2.safetensors"})");
  std::filesystem::create_directory(folder.path() / "blobs");
  std::filesystem::rename(folder.path() / "s2.safetensors", folder.path() / "blobs" / "0123");
  std::filesystem::create_symlink("blobs/0123", folder.path() / "s2.safetensors");
  EXPECT_EQ(SafetensorsFolder(folder.path()).names().size(), 2u);
}

TEST(SafetensorsFolder, SaysWhatAFolderWithoutAModelHolds) {
  const testing::TempDir folder;
  EXPECT_THAT(error_of_opening(folder.path(), ErrorCode::not_found), HasSubstr("neither model.safetensors nor"));
  testing::write_file(folder / "pytorch_model.bin", "x");
  EXPECT_THAT(error_of_opening(folder.path(), ErrorCode::not_found), HasSubstr("pickled"));
  testing::write_file(folder / "adapter_model.safetensors", "x");
  EXPECT_THAT(error_of_opening(folder.path(), ErrorCode::not_found), HasSubstr("adapter"));
  EXPECT_THAT(error_of_opening(folder / "pytorch_model.bin", ErrorCode::not_found), HasSubstr("not a folder"));
  EXPECT_THAT(error_of_opening(folder / "none", ErrorCode::not_found), HasSubstr("none"));
}

TEST(SafetensorsFolder, NamesOutsideTheFolderAreRefused) {
  const testing::TempDir outside;
  testing::write_file(outside / "s2.safetensors", one_byte("b"));
  const std::string absolute = (outside / "s2.safetensors").string();
  for (const std::string& name :
       {absolute, std::string("../s2.safetensors"), std::string("sub/s2.safetensors"),
        std::string("a/../s2.safetensors"), std::string("./s2.safetensors"), std::string("s2..safetensors"),
        std::string(".."), std::string("."), std::string(""), std::string("s2.safetensors\\u0000"),
        std::string("s2.safetensors "), std::string("\\\\s2"), std::string("s\\n2"), std::string("\\u00e9"),
        std::string(4096, 'x'), std::string("$HOME"), std::string("*")}) {
    const Sharded folder(fmt::format(R"({{"a":"s1.safetensors","b":"{}"}})", name));
    EXPECT_THAT(folder.error(), HasSubstr("not the plain name")) << name;
  }
}

TEST(SafetensorsFolder, NamesMustBeRegularFiles) {
  const auto with = [](auto&& make) {
    const Sharded folder(R"({"a":"s1.safetensors","b":"s2.safetensors"})");
    std::filesystem::remove(folder.path() / "s2.safetensors");
    make(folder.path() / "s2.safetensors");
    return folder.error(ErrorCode::io);
  };
  EXPECT_THAT(with([](const auto& path) { ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0); }), HasSubstr("regular"));
  EXPECT_THAT(with([](const auto& path) { std::filesystem::create_directory(path); }), HasSubstr("regular"));
  EXPECT_THAT(with([](const auto& path) { std::filesystem::create_symlink(path.filename(), path); }), HasSubstr("s2"));
  EXPECT_THAT(with([](const auto& path) { std::filesystem::create_symlink("/dev/zero", path); }), HasSubstr("regular"));
}

TEST(SafetensorsFolder, ListedShardsMustExist) {
  const Sharded missing_file(R"({"a":"s1.safetensors","b":"s3.safetensors"})");
  EXPECT_THAT(missing_file.error(ErrorCode::not_found), HasSubstr("s3.safetensors"));
  EXPECT_THAT(missing_file.error(ErrorCode::not_found), HasSubstr("model.safetensors.index.json"));
}

TEST(SafetensorsFolder, AListedTensorThatNoShardHoldsIsPassedOverWithAWarning) {
  const Sharded folder(R"({"a":"s1.safetensors","b":"s2.safetensors","c":"s2.safetensors","d":"s1.safetensors"})");
  const testing::CapturedLog log;
  EXPECT_THAT(SafetensorsFolder(folder.path()).names(), ElementsAre("a", "b"));
  EXPECT_THAT(SafetensorsFolder(folder.path()).names(), ElementsAre("a", "b"));
  EXPECT_THAT(log.text(),
              HasSubstr("lists tensors that no shard holds, 2 of them, which are passed over: \"c\" in s2"));
  EXPECT_EQ(log.lines(), 1u) << "once for all readers of the folder";
}

// As files over the shards of a published model, which hold other values of some tensors.
TEST(SafetensorsFolder, TheIndexChoosesAmongShardsWithTheSameTensor) {
  const Sharded folder(R"({"a":"s3.safetensors","b":"s2.safetensors","c":"s1.safetensors"})");
  testing::write_file(folder.path() / "s1.safetensors", one_byte_each({"a", "b", "c"}));
  testing::write_file(folder.path() / "s3.safetensors", one_byte_each({"b", "a"}));
  const SafetensorsFolder model(folder.path());
  EXPECT_THAT(model.names(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(model.at("a").reader->path().filename(), "s3.safetensors");
  EXPECT_EQ(model.at("b").reader->path().filename(), "s2.safetensors");
  EXPECT_EQ(model.at("c").reader->path().filename(), "s1.safetensors");
}

TEST(SafetensorsFolder, TensorsOfTheShardsThatTheIndexHasElsewhereOrNotAreFound) {
  const Sharded swapped(R"({"a":"s2.safetensors","b":"s1.safetensors"})");
  EXPECT_EQ(SafetensorsFolder(swapped.path()).at("a").reader->path().filename(), "s1.safetensors");
  const Sharded unlisted(R"({"b":"s2.safetensors","c":"s1.safetensors"})");
  EXPECT_EQ(SafetensorsFolder(unlisted.path()).at("a").reader->path().filename(), "s1.safetensors");
  testing::write_file(unlisted.path() / "s2.safetensors", one_byte_each({"a", "b"}));
  EXPECT_THAT(unlisted.error(), HasSubstr("\"a\" is both in"));
}

TEST(SafetensorsFolder, TheIndexMustHaveItsStructure) {
  Sharded folder("{}");
  EXPECT_EQ(folder.error(), "");  // no tensors, no shards: empty, and for the model to judge
  for (const char* text :
       {"", "[]", "null", "{}", R"({"weight_map":[]})", R"({"weight_map":{"a":1}})",
        R"({"weight_map":{"":"s1.safetensors"}})", R"({"weight_map":{"a":"s1.safetensors","a":"s1.safetensors"}})",
        R"({"weight_map":{"\u0001":"s1.safetensors"}})", "{\"weight_map\":{}} // comment"}) {
    folder.set_index(text);
    EXPECT_THAT(folder.error(), HasSubstr("model.safetensors.index.json:1:")) << text;
  }
}

TEST(SafetensorsFolder, TheIndexIsBounded) {
  std::string text = "{\"weight_map\":{";
  for (int i = 0; i < 1'002'000; ++i) text += fmt::format("{}\"{:x}\":\"s\"", i ? "," : "", i);
  try {
    (void)parse_safetensors_index(text + "}}", "index");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_THAT(error.what(), HasSubstr("values"));
  }
  const testing::TempDir folder;
  testing::write_file(folder / std::string(kModelIndexName), "");
  std::filesystem::resize_file(folder / std::string(kModelIndexName), std::uintmax_t{1} << 40);  // sparse
  EXPECT_THAT(error_of_opening(folder.path()), HasSubstr("at most"));
}

TEST(SafetensorsFolderGolden, ShardsOfTheReferenceImplementationLoad) {
  const SafetensorsFolder model(testing::golden_dir() / "models" / "mixtral");
  EXPECT_EQ(model.files().size(), 9u);
  EXPECT_EQ(model.at("lm_head.weight").entry->shape, Shape({160, 32}));
  EXPECT_EQ(model.total_bytes() % 4, 0u);
  EXPECT_EQ(SafetensorsFolder(testing::golden_dir() / "models" / "llama").files().size(), 1u);
}

TEST(SafetensorsFolderGolden, WritingTheSameShardsGivesTheSameIndex) {
  const auto source = testing::golden_dir() / "models" / "mixtral";
  const SafetensorsFolder model(source);
  std::vector<std::vector<std::byte>> data;
  std::vector<SafetensorsItem> items;
  std::uint64_t largest = 0;
  for (const SafetensorsReader& file : model.files()) {
    std::uint64_t bytes = 0;
    for (const SafetensorsEntry& entry : file.header().entries) {
      auto& buffer = data.emplace_back(entry.nbytes());
      file.read(entry, buffer);
      items.push_back({.name = entry.name, .dtype = *entry.dtype, .shape = entry.shape, .data = buffer});
      bytes += entry.nbytes();
    }
    largest = std::max(largest, bytes);
  }
  const testing::TempDir folder;
  write_safetensors_folder(folder.path(), items, largest);
  const auto index = Json::parse_file(folder / std::string(kModelIndexName));
  const auto expected = Json::parse_file(source / kModelIndexName);
  EXPECT_EQ(index.at("metadata").at("total_size"), expected.at("metadata").at("total_size"));
  EXPECT_EQ(index.at("weight_map").as_object().size(), expected.at("weight_map").as_object().size());
  const SafetensorsFolder copy(folder.path());
  EXPECT_EQ(copy.names(), model.names());
  for (const std::string& name : copy.names()) EXPECT_EQ(read_tensor(copy, name), read_tensor(model, name)) << name;
}

TEST(SafetensorsFolderWriter, OneShardNeedsNoIndex) {
  const testing::TempDir folder;
  write_safetensors_folder(folder / "new", {item("a", "12"), item("b", "34")}, 4);
  EXPECT_THAT(files_in(folder / "new"), ElementsAre("model.safetensors"));
  EXPECT_EQ(read_tensor(SafetensorsFolder(folder / "new"), "b"), "34");
}

TEST(SafetensorsFolderWriter, SplitsInOrderAndWritesTheIndex) {
  const testing::TempDir folder;
  write_safetensors_folder(folder.path(),
                           {item("c", "12"), item("b", "3"), item("a", "45678"), item("e", ""), item("d", "9")}, 3);
  EXPECT_THAT(files_in(folder.path()),
              ElementsAre("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                          "model-00003-of-00003.safetensors", "model.safetensors.index.json"));
  EXPECT_EQ(testing::read_file(folder / "model.safetensors.index.json"),
            "{\n  \"metadata\": {\n    \"total_size\": 9\n  },\n  \"weight_map\": {\n"
            "    \"a\": \"model-00002-of-00003.safetensors\",\n    \"b\": \"model-00001-of-00003.safetensors\",\n"
            "    \"c\": \"model-00001-of-00003.safetensors\",\n    \"d\": \"model-00003-of-00003.safetensors\",\n"
            "    \"e\": \"model-00003-of-00003.safetensors\"\n  }\n}\n");
  const SafetensorsFolder model(folder.path());
  EXPECT_THAT(model.names(), ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_EQ(read_tensor(model, "a"), "45678");
  EXPECT_EQ(model.at("e").reader->header().metadata.at("format"), "pt");
}

TEST(SafetensorsFolderWriter, ReplacesAModelOfOtherShape) {
  const testing::TempDir folder;
  testing::write_file(folder / "config.json", "{}");
  testing::write_file(folder / "model-best.safetensors", "not a shard name");
  write_safetensors_folder(folder.path(), {item("a", "1"), item("b", "2"), item("c", "3")}, 1);
  write_safetensors_folder(folder.path(), {item("a", "4"), item("b", "5")}, 1);
  EXPECT_THAT(files_in(folder.path()),
              ElementsAre("config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                          "model-best.safetensors", "model.safetensors.index.json"));
  EXPECT_THAT(SafetensorsFolder(folder.path()).names(), ElementsAre("a", "b"));
  write_safetensors_folder(folder.path(), {item("s", "6")}, 1);
  EXPECT_THAT(files_in(folder.path()), ElementsAre("config.json", "model-best.safetensors", "model.safetensors"));
  write_safetensors_folder(folder.path(), {item("a", "7"), item("b", "8")}, 1);
  EXPECT_FALSE(std::filesystem::exists(folder / "model.safetensors"));
  EXPECT_EQ(read_tensor(SafetensorsFolder(folder.path()), "b"), "8");
}

TEST(SafetensorsFolderWriter, AFailureLeavesTheOldModelIntact) {
  const testing::TempDir folder;
  write_safetensors_folder(folder.path(), {item("a", "1"), item("b", "2")}, 1);
  const auto before = files_in(folder.path());
  const std::string large(1 << 20, 'x');
  {
    const testing::FileSizeLimit limit(64 << 10);
    EXPECT_THROW(write_safetensors_folder(folder.path(), {item("a", "3"), item("b", large)}, 1), Error);
  }
  EXPECT_THROW(write_safetensors_folder(folder.path(), {item("a", "3"), item("a", "4")}, 1), Error);
  EXPECT_EQ(files_in(folder.path()), before);
  EXPECT_EQ(read_tensor(SafetensorsFolder(folder.path()), "a"), "1");
}

}  // namespace
}  // namespace quench
