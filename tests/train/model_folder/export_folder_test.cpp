// Files that an export may replace, and files that it must keep.

#include "train/model_folder/export_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/json/json.h"
#include "core/safetensors/safetensors.h"
#include "core/system/check.h"
#include "export/formats/export_mark.h"
#include "export/formats/gguf/metadata.h"
#include "tests/testing.h"
#include "train/model_folder/model_folder.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_file;
using testing::TempDir;
using testing::write_file;

std::set<std::string> names(const fs::path& folder) {
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder)) found.insert(entry.path().filename().string());
  return found;
}

class ExportFolder : public ::testing::Test {
 protected:
  ExportFolder() { model_.initialize(1); }

  void save(const ExportTarget& target, std::int64_t max_shard_bytes = 1 << 30) const {
    save_model_folder(model_, target, {.dtype = DType::f32, .max_shard_bytes = max_shard_bytes});
  }
  [[nodiscard]] std::string refusal(const ExportTarget& target) const {
    try {
      save(target);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_config);
      return error.what();
    }
    return "";
  }
  void expect_loads(const fs::path& folder) const {
    nn::CausalLm loaded(read_model_config(folder), nn::ParameterOptions{});
    EXPECT_NO_THROW(load_weights(loaded, folder));
  }

  TempDir dir_;
  fs::path out_ = dir_ / "out";
  mutable nn::CausalLm model_{
      nn::parse_model_config(Json::parse(R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 16, "hidden_size": 8,
                            "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
                            "num_key_value_heads": 1, "tie_word_embeddings": false})"),
                             "config.json"),
      nn::ParameterOptions{}};
};

TEST_F(ExportFolder, AFolderOfExportFilesIsReplacedWhole) {
  save({out_}, 100);
  EXPECT_GT(names(out_).count("model.safetensors.index.json"), 0u);
  write_file(out_ / "LICENSE", "old");
  write_file(out_ / "tokenizer.json", "old");
  save({out_});
  EXPECT_THAT(names(out_), ElementsAre("config.json", "generation_config.json", "model.safetensors"));
  EXPECT_THAT(names(dir_.path()), ElementsAre("out"));
}

TEST_F(ExportFolder, ForeignFilesAreNamedAndNothingIsTouched) {
  save({out_});
  write_file(out_ / "README.md", "mine");
  fs::create_directory(out_ / ".git");
  write_file(out_ / ".git" / "HEAD", "mine");
  const std::string weights = read_file(out_ / "model.safetensors");
  const std::string message = refusal({out_});
  EXPECT_THAT(message, HasSubstr(".git/, README.md"));
  EXPECT_THAT(message, HasSubstr("--overwrite"));
  EXPECT_EQ(read_file(out_ / "README.md"), "mine");
  EXPECT_EQ(read_file(out_ / ".git" / "HEAD"), "mine");
  EXPECT_EQ(read_file(out_ / "model.safetensors"), weights);
  EXPECT_THAT(names(dir_.path()), ElementsAre("out"));
}

// Folders with the same names: another program's model, and one with a file that it replaced.
TEST_F(ExportFolder, AModelWithoutTheMarkIsNotReplaced) {
  fs::create_directory(out_);
  const Tensor one = Tensor::zeros({1}, DType::f32);
  const std::vector<SafetensorsItem> items{
      {"w", one.dtype(), one.shape(), {static_cast<const std::byte*>(one.raw_data()), one.nbytes()}}};
  write_safetensors(out_ / "model.safetensors", items);
  write_file(out_ / "config.json", "theirs");
  const std::string weights = read_file(out_ / "model.safetensors");
  EXPECT_THAT(refusal({out_}), AllOf(HasSubstr("without the mark of an export"),
                                     HasSubstr("config.json, model.safetensors"), HasSubstr("--overwrite")));
  EXPECT_EQ(read_file(out_ / "model.safetensors"), weights);
  EXPECT_EQ(read_file(out_ / "config.json"), "theirs");
  save({.folder = out_, .overwrite = true});
  expect_loads(out_);
  save({out_});  // now with the mark
  save({out_}, 100);
  for (const std::string& name : names(out_))
    if (name.starts_with("model-")) {
      write_safetensors(out_ / name, items);
      break;
    }
  EXPECT_THAT(refusal({out_}), HasSubstr("without the mark of an export"));
  fs::create_directory(dir_ / "alone");
  write_file(dir_ / "alone" / "tokenizer.json", "theirs");
  EXPECT_THAT(refusal({dir_ / "alone"}), HasSubstr("tokenizer.json"));
}

// As Transformers' save_pretrained() into the folder of an export, whose card stays.
TEST_F(ExportFolder, AModelThatWasSavedOverAnExportIsNotReplaced) {
  save_model_folder(model_, {out_}, {.dtype = DType::f32, .card = ModelFolderOptions::Card{}});
  ASSERT_TRUE(fs::exists(out_ / "README.md"));
  save({out_});
  save_model_folder(model_, {out_}, {.dtype = DType::f32, .card = ModelFolderOptions::Card{}});
  const Tensor one = Tensor::zeros({1}, DType::f32);
  write_safetensors(out_ / "model.safetensors",
                    {{"w", one.dtype(), one.shape(), {static_cast<const std::byte*>(one.raw_data()), one.nbytes()}}});
  const std::string theirs = read_file(out_ / "model.safetensors");
  EXPECT_THAT(refusal({out_}), AllOf(HasSubstr("without the mark of an export"), HasSubstr("--overwrite")));
  EXPECT_EQ(read_file(out_ / "model.safetensors"), theirs);
}

TEST_F(ExportFolder, AGgufFileWithoutTheMarkIsNotReplaced) {
  const fs::path file = dir_ / "m.gguf";
  std::string head = gguf_head({{"general.architecture", std::string("llama")}}, {});
  write_file(file, head);
  const auto refused = [&](bool overwrite) {
    try {
      require_export_target({.folder = file, .overwrite = overwrite});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused(false), AllOf(HasSubstr("is not a GGUF file that an export wrote"), HasSubstr("--overwrite")));
  EXPECT_EQ(refused(true), "");
  head = gguf_head({{"general.architecture", std::string("llama")}, {kGgufExportMark, true}}, {});
  write_file(file, head);
  EXPECT_EQ(refused(false), "");
}

// One of another name is an export of its own: it stays, and keeps no other export out.
TEST_F(ExportFolder, AGgufExportInTheFolderStays) {
  save({out_});
  const std::string marked = gguf_head({{"general.architecture", std::string("llama")}, {kGgufExportMark, true}}, {});
  write_file(out_ / "mine-Q8_0.gguf", marked);
  model_.initialize(2);
  save({out_});
  EXPECT_EQ(read_file(out_ / "mine-Q8_0.gguf"), marked);
  EXPECT_TRUE(names(out_).contains("model.safetensors"));
  EXPECT_THAT(names(dir_.path()), ElementsAre("out"));
  expect_loads(out_);
  const fs::path other = dir_ / "other";
  fs::create_directories(other);
  write_file(other / "mine.gguf", marked);
  save({other});
  EXPECT_TRUE(names(other).contains("mine.gguf"));
  // Next to files of the user's, it does not make them those of an export.
  const fs::path own = dir_ / "own";
  fs::create_directories(own);
  write_file(own / "mine.gguf", marked);
  write_file(own / "tokenizer.json", "the user's");
  EXPECT_THAT(refusal({own}), HasSubstr("files without the mark of an export"));
  EXPECT_EQ(read_file(own / "tokenizer.json"), "the user's");
  write_file(other / "foreign.gguf", gguf_head({{"general.architecture", std::string("llama")}}, {}));
  EXPECT_THAT(refusal({other}), HasSubstr("files that are not part of an export: foreign.gguf"));
}

// A run folder holds a config.json, as a model folder does.
TEST_F(ExportFolder, ARunFolderIsNotReplaced) {
  fs::create_directories(out_ / "checkpoints" / "step-1");
  for (const char* file : {"config.json", "environment.json", "checkpoints/step-1/manifest.json"})
    write_file(out_ / file, "run");
  EXPECT_THAT(refusal({out_}), HasSubstr("checkpoints/, environment.json"));
  EXPECT_EQ(read_file(out_ / "config.json"), "run");
  EXPECT_EQ(read_file(out_ / "checkpoints/step-1/manifest.json"), "run");
}

TEST_F(ExportFolder, LinksAndFilesAreNotReplaced) {
  write_file(dir_ / "blob", "cached");
  fs::create_directory(out_);
  fs::create_symlink(dir_ / "blob", out_ / "model.safetensors");
  EXPECT_THAT(refusal({out_}), HasSubstr("model.safetensors"));
  EXPECT_THAT(refusal({.folder = out_, .overwrite = true}), HasSubstr("exists and is not a file"));
  EXPECT_EQ(read_file(dir_ / "blob"), "cached");
  EXPECT_THAT(refusal({dir_ / "blob"}), HasSubstr("it exists and is not a folder"));
  fs::create_directory_symlink(dir_ / "absent", dir_ / "dangling");
  EXPECT_THAT(refusal({dir_ / "dangling"}), HasSubstr("dangling link"));
  EXPECT_THAT(refusal({""}), HasSubstr("the name of the folder to write to is empty"));
  EXPECT_THAT(refusal({dir_ / std::string(300, 'x')}), HasSubstr("xxx: File name too long"));
}

TEST_F(ExportFolder, OverwriteReplacesFilesOfTheSameNamesAndLeavesTheRest) {
  save({out_});
  write_file(out_ / "README.md", "mine");
  write_file(out_ / "LICENSE", "mine");
  write_file(out_ / "config.json", "{}");
  save({.folder = out_, .overwrite = true});
  EXPECT_THAT(names(out_),
              ElementsAre("LICENSE", "README.md", "config.json", "generation_config.json", "model.safetensors"));
  EXPECT_EQ(read_file(out_ / "README.md"), "mine");
  EXPECT_EQ(read_file(out_ / "LICENSE"), "mine");
  expect_loads(out_);
  EXPECT_THAT(names(dir_.path()), ElementsAre("out"));
}

// Files of another number of shards, or another kind of tokenizer: kept, but where no reader takes them for the new
// model's.
TEST_F(ExportFolder, OverwriteMovesAwayWhatWouldMislead) {
  save({out_}, 100);
  write_file(out_ / "README.md", "mine");
  write_file(out_ / "tokenizer.model", "old");
  save({.folder = out_, .overwrite = true});
  EXPECT_THAT(names(out_),
              ElementsAre("README.md", "config.json", "generation_config.json", "model.safetensors", "replaced-1"));
  const auto replaced = names(out_ / "replaced-1");
  EXPECT_TRUE(replaced.contains("tokenizer.model"));
  EXPECT_TRUE(replaced.contains("model.safetensors.index.json"));
  EXPECT_FALSE(replaced.contains("config.json"));
  expect_loads(out_);
  save({.folder = out_, .overwrite = true}, 100);  // and from one file to several
  EXPECT_FALSE(names(out_).contains("model.safetensors"));
  EXPECT_THAT(names(out_ / "replaced-2"), ElementsAre("model.safetensors"));
  expect_loads(out_);
}

TEST_F(ExportFolder, TheTargetIsNotTheSourceNorInItNorAroundIt) {
  const fs::path source = dir_ / "models" / "source";
  fs::create_directories(source);
  fs::create_directory_symlink(source, dir_ / "link");
  const auto with = [&](const fs::path& target) { return refusal({.folder = target, .sources = {source}}); };
  EXPECT_THAT(with(source), HasSubstr("it is "));
  EXPECT_THAT(with(dir_ / "link"), HasSubstr("it is "));
  EXPECT_THAT(with(dir_ / "link" / "new"), HasSubstr("lies in"));
  EXPECT_THAT(with(source / "a" / ".." / "b"), HasSubstr("lies in"));
  EXPECT_THAT(with(dir_ / "models"), HasSubstr("holds"));
  EXPECT_EQ(with(dir_ / "models" / "beside"), "");
  const auto kept = [&](const fs::path& target) { return refusal({.folder = target, .kept = {source}}); };
  EXPECT_THAT(kept(source), HasSubstr("it is "));
  EXPECT_THAT(kept(dir_ / "models"), HasSubstr("holds"));
  EXPECT_EQ(kept(source / "export"), "");
}

}  // namespace
}  // namespace quench
