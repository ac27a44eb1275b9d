#include "data/text/data_files.h"

#include "tests/data/sampling/token_fixtures.h"

namespace quench {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using ::testing::IsEmpty;
using testing::TempDir;
using testing::write_file;

namespace fs = std::filesystem;

// Files of one folder, and what it stands for, as names within it.
class DataFolder {
 public:
  explicit DataFolder(const std::vector<std::string>& files) {
    for (const std::string& file : files) {
      fs::create_directories((folder_ / file).parent_path());
      write_file(folder_ / file, "{}");
    }
  }
  [[nodiscard]] std::vector<std::string> files(DataSplit split = DataSplit::train, const std::string& end = "") const {
    std::vector<std::string> names;
    for (const fs::path& path : expand_data_files({folder_.path().string() + end}, split))
      names.push_back(path.lexically_relative(folder_.path()).string());
    return names;
  }
  [[nodiscard]] fs::path path() const { return folder_.path(); }

 private:
  TempDir folder_;
};

constexpr DataSplit kHeldOut = DataSplit::validation;

TEST(DataFiles, AHubDataSetHasItsSplitsByFileName) {
  const DataFolder folder({"README.md", ".gitattributes", "dataset_infos.json",
                           "data/train-00000-of-00002-0123abcd.parquet", "data/train-00001-of-00002-0123abcd.parquet",
                           "data/test-00000-of-00001.parquet", "data/validation-00000-of-00001.parquet"});
  EXPECT_THAT(folder.files(),
              ElementsAre("data/train-00000-of-00002-0123abcd.parquet", "data/train-00001-of-00002-0123abcd.parquet"));
  EXPECT_EQ(folder.files(DataSplit::train, "/"), folder.files());
  EXPECT_THAT(folder.files(kHeldOut), ElementsAre("data/validation-00000-of-00001.parquet"));
}

TEST(DataFiles, SplitsByWholeNamesAndByFolders) {
  const DataFolder names({"train.jsonl.gz", "test.jsonl.gz", "extra.jsonl.gz"});
  EXPECT_THAT(names.files(), ElementsAre("train.jsonl.gz"));
  EXPECT_THAT(names.files(kHeldOut), ElementsAre("test.jsonl.gz"));
  const DataFolder folders({"train/data-00000-of-00001.arrow", "train/dataset_info.json", "train/state.json",
                            "valid/data-00000-of-00001.arrow", "dataset_dict.json", "train/cache-12.arrow"});
  EXPECT_THAT(folders.files(), ElementsAre("train/data-00000-of-00001.arrow"));
  EXPECT_THAT(folders.files(kHeldOut), ElementsAre("valid/data-00000-of-00001.arrow"));
  const DataFolder words({"my_train_set.csv", "my_dev_set.csv"});
  EXPECT_THAT(words.files(), ElementsAre("my_train_set.csv"));
  EXPECT_THAT(words.files(kHeldOut), ElementsAre("my_dev_set.csv"));
}

TEST(DataFiles, WithoutSplitsAllFilesAreTheData) {
  const DataFolder texts({"b.txt", "the test of time.txt", "a/c.txt.zst", "README.md", "picture.png"});
  EXPECT_THAT(texts.files(), ElementsAre("a/c.txt.zst", "b.txt", "the test of time.txt"));
  EXPECT_EQ(texts.files(kHeldOut), texts.files());
  const DataFolder records({"part-0.jsonl", "part-1.jsonl", "notes.txt"});
  EXPECT_THAT(records.files(), ElementsAre("part-0.jsonl", "part-1.jsonl"));
}

TEST(DataFiles, TheCardOfADataSetNamesItsFiles) {
  const DataFolder folder({"en/a.jsonl", "en/b.jsonl", "fr/a.jsonl", "held.jsonl"});
  const auto write_card = [&](const std::string& configs) {
    write_file(folder.path() / "README.md", "---\nconfigs:\n" + configs + "---\n# Text\n");
  };
  const std::string english =
      "- config_name: en\n  data_files:\n  - split: train\n    path: en/*\n"
      "  - split: test\n    path: held.jsonl\n";
  const std::string french = "- config_name: fr\n  data_files:\n  - split: train\n    path: fr/a.jsonl\n";
  write_card(english);
  EXPECT_THAT(folder.files(), ElementsAre("en/a.jsonl", "en/b.jsonl"));
  EXPECT_THAT(folder.files(kHeldOut), ElementsAre("held.jsonl"));
  write_card(english + french + "  default: true\n");
  EXPECT_THAT(folder.files(), ElementsAre("fr/a.jsonl"));
  expect_error(ErrorCode::not_found, {"validation or test", "train"}, [&] { (void)folder.files(kHeldOut); });
  write_card(english + french);
  expect_error(ErrorCode::bad_config, {"several data sets", "en, fr"}, [&] { (void)folder.files(); });
  write_card(
      "- config_name: a\n  data_files:\n  - split: train_sft\n    path: en/a.jsonl\n"
      "  - split: train_gen\n    path: en/b.jsonl\n");
  expect_error(ErrorCode::bad_config, {"several train splits", "train_sft, train_gen"}, [&] { (void)folder.files(); });
  write_card("- config_name: a\n  data_dir: fr\n- config_name: gone\n  data_files: gone/*\n");
  EXPECT_THAT(folder.files(), ElementsAre("fr/a.jsonl"));
}

// A card comes with a downloaded data set, its folder is the user's.
TEST(DataFiles, ACardNamesNoFilesOutsideOfItsFolder) {
  const DataFolder parent({"private/secret.jsonl", "ds/data/train.jsonl"});
  const fs::path folder = parent.path() / "ds";
  fs::create_symlink("../../private/secret.jsonl", folder / "data/link.jsonl");
  fs::create_directory_symlink("../private", folder / "linked");
  fs::create_directory(folder / "extra");
  fs::create_symlink("../../private/secret.jsonl", folder / "extra/link.jsonl");
  const auto files_with = [&](const std::string& entry) {
    write_file(folder / "README.md", "---\nconfigs:\n- config_name: default\n" + entry + "---\n");
    return expand_data_files({folder.string()});
  };
  const auto path = [](const std::string& name) {
    return "  data_files:\n  - split: train\n    path: \"" + name + "\"\n";
  };
  for (const std::string& name :
       {std::string("../private/secret.jsonl"), std::string("../*/secret.jsonl"), std::string("data/../../private/*"),
        std::string("*/../../private/secret.jsonl"), std::string("data{/../../private/secret,/x}.jsonl"),
        (parent.path() / "private/secret.jsonl").string(), (parent.path() / "private/*").string(),
        std::string("data/link.jsonl"), std::string("data/*.jsonl"), std::string("linked/secret.jsonl"),
        std::string("../absent.jsonl")})
    expect_error(ErrorCode::bad_config, {(folder / "README.md").string(), name, "outside"},
                 [&] { (void)files_with(path(name)); });
  for (const std::string name : {"..", "../private", "linked", "extra"})
    expect_error(ErrorCode::bad_config, {(folder / "README.md").string(), "\"" + name + "\"", "outside"},
                 [&] { (void)files_with("  data_dir: " + name + "\n"); });
  EXPECT_THAT(files_with(path("data/../data/train.jsonl")), ElementsAre(folder / "data/../data/train.jsonl"));
}

// hub/datasets--a--b/snapshots/<revision>/data/train.jsonl -> ../../../blobs/<hash>
TEST(DataFiles, ACardInTheHuggingFaceCacheNamesLinksToItsBlobs) {
  const DataFolder parent({"datasets--a--b/blobs/0123", "datasets--a--b/snapshots/4567/data/b.jsonl", "blobs/89ab"});
  const fs::path folder = parent.path() / "datasets--a--b/snapshots/4567";
  fs::create_symlink("../../../blobs/0123", folder / "data/train.jsonl");
  write_file(folder / "README.md",
             "---\nconfigs:\n- config_name: a\n  data_files:\n  - split: train\n    path: data/train*\n---\n");
  EXPECT_THAT(expand_data_files({folder.string()}), ElementsAre(folder / "data/train.jsonl"));
  fs::create_symlink("../../../../blobs/89ab", folder / "data/train-2.jsonl");
  expect_error(ErrorCode::bad_config, {"README.md", "blobs/89ab"}, [&] { (void)expand_data_files({folder.string()}); });
}

// The library leaves the files of an earlier data set in the folder.
TEST(DataFiles, ASavedDataSetIsWhatItsStateLists) {
  const DataFolder folder({"data-00000-of-00001.arrow", "data-00000-of-00002.arrow", "data-00001-of-00002.arrow"});
  const auto write_state = [&](const std::string& name) {
    write_file(folder.path() / "state.json", R"({"_data_files": [{"filename": ")" + name + R"("}], "_split": null})");
  };
  write_state("data-00000-of-00001.arrow");
  EXPECT_THAT(folder.files(), ElementsAre("data-00000-of-00001.arrow"));
  write_state("data-00000-of-00003.arrow");
  expect_error(ErrorCode::not_found, {"state.json", "data-00000-of-00003.arrow", "does not exist"},
               [&] { (void)folder.files(); });
  for (const char* name : {"../x.arrow", "/x.arrow", "a/x.arrow", "..", ""}) {
    write_state(name);
    expect_error(ErrorCode::corrupt, {"state.json", "not in its folder"}, [&] { (void)folder.files(); });
  }
}

TEST(DataFiles, ASavedDictionaryOfSplitsIsWhatItLists) {
  const DataFolder folder({"train/data-00000-of-00001.arrow", "train/data-00000-of-00002.arrow",
                           "test/data-00000-of-00001.arrow", "train_old/data-00000-of-00001.arrow"});
  write_file(folder.path() / "dataset_dict.json", R"({"splits": ["train", "test"]})");
  for (const char* split : {"train", "test"})
    write_file(folder.path() / split / "state.json", R"({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]})");
  EXPECT_THAT(folder.files(), ElementsAre("train/data-00000-of-00001.arrow"));
  EXPECT_THAT(folder.files(kHeldOut), ElementsAre("test/data-00000-of-00001.arrow"));
}

TEST(DataFiles, ShardsOfQuenchTokenize) {
  const DataFolder folder(
      {"dataset.json", "train-00000.bin", "train-00001.bin", "val.bin", "tokenizer/tokenizer.json"});
  EXPECT_THAT(folder.files(), ElementsAre("train-00000.bin", "train-00001.bin"));
  EXPECT_THAT(folder.files(kHeldOut), ElementsAre("val.bin"));
}

TEST(DataFiles, WhatIsNotClearIsRefusedWithTheChoices) {
  const auto refused = [](const DataFolder& folder, ErrorCode code, const std::vector<std::string>& words,
                          DataSplit split = DataSplit::train) {
    expect_error(code, words, [&] { (void)folder.files(split); });
  };
  refused(DataFolder({"picture.png"}), ErrorCode::not_found, {"no files of text or records", "parquet"});
  refused(DataFolder({"train.jsonl"}), ErrorCode::not_found, {"no validation or test split", "train"}, kHeldOut);
  refused(DataFolder({"test.jsonl"}), ErrorCode::not_found, {"no train split", "test"});
  refused(DataFolder({"a.jsonl", "b.parquet"}), ErrorCode::bad_config, {"several formats", "jsonl, parquet"});
  refused(DataFolder({"en/train.jsonl", "fr/train.jsonl"}), ErrorCode::bad_config, {"several data sets", "en, fr"});
  refused(DataFolder({"data/train_sft-00000-of-00001.parquet", "data/train_gen-00000-of-00001.parquet"}),
          ErrorCode::bad_config, {"several train splits", "train_gen, train_sft", "data/train_gen-*"});
}

}  // namespace
}  // namespace quench
