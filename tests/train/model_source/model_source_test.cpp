// Kinds of model sources, folders that fit several kinds, and paths that hold none.

#include "train/model_source/model_source.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "export/table/format.h"
#include "tests/testing.h"
#include "train/check/load.h"
#include "train/model_folder/model_folder.h"
#include "train/model_folder/peft_folder.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TempDir;
using testing::write_file;
using Kind = ModelSourceKind;

constexpr const char* kRunConfig = R"({"model": {"preset": "tiny"}, "training": {"steps": 1}})";

fs::path golden_model() {
  return testing::golden_dir() / "models" / "llama";
}
fs::path golden_adapter() {
  return testing::golden_dir() / "models" / "llama_lora";
}
fs::path golden_checkpoint() {
  return testing::source_dir() / "tests/train/checkpoint_format_1/step-7";
}

void copy_into(const fs::path& from, const fs::path& to) {
  fs::create_directories(to);
  fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
}

// The golden model in another format.
void write_model(const fs::path& target, const char* format, const char* scheme) {
  nn::CausalLm model(read_model_config(golden_model()), nn::ParameterOptions{});
  load_weights(model, golden_model());
  ModelFolderOptions options{.dtype = DType::f32, .format = export_formats().find(format)};
  if (scheme != nullptr) options.quantization = QuantizationRules{.scheme = find_scheme(scheme)};
  (void)save_model_folder(model, {target}, options);
}

template <class Call>
std::string error_of(Call&& call, ErrorCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}
std::string open_error(const fs::path& path, ErrorCode code) {
  return error_of([&] { (void)ModelSource::open(path); }, code);
}

class ModelSourceTest : public ::testing::Test {
 protected:
  // <temp>/run with checkpoints/step-7.
  fs::path make_run() {
    copy_into(golden_checkpoint(), temp_ / "run/checkpoints/step-7");
    write_file(temp_ / "run/config.json", kRunConfig);
    return temp_ / "run";
  }

  TempDir temp_;
};

TEST_F(ModelSourceTest, HuggingFaceFolder) {
  const ModelSource source = ModelSource::open(golden_model());
  EXPECT_EQ(source.kind(), Kind::model_folder);
  EXPECT_TRUE(source.is_model());
  EXPECT_FALSE(source.is_trained());
  EXPECT_NO_THROW(source.require_model());
  EXPECT_EQ(source.config_file(), golden_model() / "config.json");
  EXPECT_EQ(source.config().at("model_type").as_string(), "llama");
  EXPECT_EQ(source.weights(), golden_model());
  EXPECT_FALSE(source.is_quantized(source.config()));
  EXPECT_TRUE(source.adapter().empty());
  EXPECT_TRUE(source.run().empty());
  EXPECT_TRUE(source.checkpoints().empty());
  EXPECT_THAT(error_of([&] { (void)source.checkpoint(); }, ErrorCode::bad_config),
              HasSubstr("is a model folder, which holds no checkpoints"));
}

TEST_F(ModelSourceTest, FolderWithoutWeights) {
  fs::copy_file(golden_model() / "config.json", temp_ / "config.json");
  const ModelSource source = ModelSource::open(temp_.path());
  EXPECT_EQ(source.kind(), Kind::model_folder);
  EXPECT_TRUE(source.weights().empty());
  EXPECT_EQ(source.config().at("model_type").as_string(), "llama");
}

TEST_F(ModelSourceTest, FolderWithoutConfig) {
  fs::copy_file(golden_model() / "model.safetensors", temp_ / "model.safetensors");
  const ModelSource source = ModelSource::open(temp_.path());
  EXPECT_EQ(source.kind(), Kind::model_folder);
  EXPECT_EQ(source.weights(), temp_.path());
  EXPECT_TRUE(source.config_file().empty());
  EXPECT_THAT(error_of([&] { (void)source.config(); }, ErrorCode::not_found), HasSubstr("has no config.json"));
}

TEST_F(ModelSourceTest, ConfigThatIsNoObjectIsNamed) {
  write_file(temp_ / "config.json", "[1]");
  const ModelSource source = ModelSource::open(temp_.path());
  EXPECT_THAT(error_of([&] { (void)source.config(); }, ErrorCode::corrupt),
              AllOf(HasSubstr("config.json"), HasSubstr("expected a JSON object")));
  write_file(temp_ / "config.json", "{");
  EXPECT_THAT(error_of([&] { (void)source.config(); }, ErrorCode::corrupt), HasSubstr("config.json:1:"));
}

TEST_F(ModelSourceTest, QuantizedFolder) {
  write_model(temp_ / "int8", "compressed-tensors", "int8_weight_only");
  const ModelSource source = ModelSource::open(temp_ / "int8");
  EXPECT_EQ(source.kind(), Kind::model_folder);
  EXPECT_TRUE(source.is_quantized(source.config()));
  EXPECT_EQ(source.config().at("quantization_config").at("quant_method").as_string(), "compressed-tensors");
}

TEST_F(ModelSourceTest, GgufFileAndItsFolder) {
  write_model(temp_ / "gguf", "gguf", "q8_0");
  const fs::path file = temp_ / "gguf" / "model.gguf";
  fs::create_directories(temp_ / "alone");
  fs::copy_file(file, temp_ / "alone/m.gguf");
  for (const auto& [path, kind] : {std::pair{temp_ / "gguf", Kind::model_folder},
                                   {file, Kind::gguf_file},
                                   {temp_ / "alone", Kind::model_folder},
                                   {temp_ / "alone/m.gguf", Kind::gguf_file}}) {
    const ModelSource source = ModelSource::open(path);
    EXPECT_EQ(source.kind(), kind) << path;
    EXPECT_TRUE(source.is_model());
    EXPECT_EQ(source.weights().extension(), ".gguf") << path;
    EXPECT_EQ(source.config().at("model_type").as_string(), "llama") << path;
    EXPECT_TRUE(source.is_quantized(source.config())) << path;
  }
  EXPECT_EQ(ModelSource::open(file).config_file(), temp_ / "gguf/config.json");
  EXPECT_EQ(ModelSource::open(temp_ / "alone").config_file(), temp_ / "alone/m.gguf");
}

TEST_F(ModelSourceTest, AdapterFolder) {
  const ModelSource source = ModelSource::open(golden_adapter());
  EXPECT_EQ(source.kind(), Kind::adapter_folder);
  EXPECT_EQ(source.adapter(), golden_adapter());
  const Json config = Json::parse_file(golden_adapter() / "adapter_config.json");
  EXPECT_EQ(source.adapter_base(), config.at("base_model_name_or_path").as_string());
  EXPECT_FALSE(source.is_model());
  EXPECT_THAT(error_of([&] { source.require_model(); }, ErrorCode::bad_config),
              AllOf(HasSubstr(golden_adapter().string()), HasSubstr("is a PEFT adapter folder, no model folder"),
                    HasSubstr("name its base model (" + source.adapter_base() + ")"), HasSubstr("--adapter")));
  EXPECT_THAT(error_of([&] { (void)read_model_config(golden_adapter()); }, ErrorCode::bad_config),
              HasSubstr("PEFT adapter folder"));
}

TEST_F(ModelSourceTest, Checkpoint) {
  const ModelSource source = ModelSource::open(golden_checkpoint());
  EXPECT_EQ(source.kind(), Kind::checkpoint);
  EXPECT_TRUE(source.is_trained());
  EXPECT_EQ(source.checkpoint(), golden_checkpoint());
  EXPECT_TRUE(source.run().empty());
  EXPECT_THAT(error_of([&] { (void)source.config(); }, ErrorCode::bad_config),
              AllOf(HasSubstr("is a training checkpoint"), HasSubstr("quench export")));
}

TEST_F(ModelSourceTest, FolderOfCheckpoints) {
  copy_into(golden_checkpoint(), temp_ / "kept/step-7");
  const ModelSource source = ModelSource::open(temp_ / "kept");
  EXPECT_EQ(source.kind(), Kind::checkpoint_folder);
  EXPECT_EQ(source.checkpoints(), temp_ / "kept");
  EXPECT_EQ(source.checkpoint(), temp_ / "kept/step-7");
  EXPECT_TRUE(source.run().empty());

  fs::remove(temp_ / "kept/step-7/rank-00000.safetensors");
  EXPECT_THAT(error_of([&] { (void)ModelSource::open(temp_ / "kept").checkpoint(); }, ErrorCode::not_found),
              AllOf(HasSubstr("kept has no checkpoint that can be used"), HasSubstr("rank-00000.safetensors")));
}

TEST_F(ModelSourceTest, RunFolder) {
  const fs::path run = make_run();
  const ModelSource source = ModelSource::open(run);
  EXPECT_EQ(source.kind(), Kind::run_folder);
  EXPECT_EQ(source.run(), run);
  EXPECT_EQ(source.checkpoints(), run / "checkpoints");
  EXPECT_EQ(source.checkpoint(), run / "checkpoints/step-7");
  EXPECT_TRUE(source.tokenizer().empty());
  fs::create_directories(run / "model");
  fs::copy_file(testing::golden_dir() / "tokenizer/tokenizer.json", run / "model/tokenizer.json");
  EXPECT_EQ(source.tokenizer(), run / "model");
  EXPECT_THAT(error_of([&] { (void)read_model_config(run); }, ErrorCode::bad_config),
              AllOf(HasSubstr("is a run folder, no model folder"), HasSubstr("quench export")));
  fs::create_directories(run / "export");
  write_file(run / "export/config.json", "{}");
  EXPECT_THAT(error_of([&] { source.require_model(); }, ErrorCode::bad_config),
              HasSubstr("name the model that it exported, " + (run / "export").string()));
}

TEST_F(ModelSourceTest, RunWithoutCheckpointSaysWhatToDo) {
  write_file(temp_ / "environment.json", "{}");
  const ModelSource source = ModelSource::open(temp_.path());
  EXPECT_EQ(source.kind(), Kind::run_folder);
  EXPECT_THAT(error_of([&] { (void)source.checkpoint(); }, ErrorCode::not_found),
              AllOf(HasSubstr("has no checkpoint that can be used"), HasSubstr("checkpoint.interval")));
}

TEST_F(ModelSourceTest, ModelAndAdapterInOneFolder) {
  copy_into(golden_model(), temp_.path());
  fs::copy_file(golden_adapter() / "adapter_config.json", temp_ / "adapter_config.json");
  const ModelSource both = ModelSource::open(temp_.path());
  EXPECT_EQ(both.kind(), Kind::model_folder);
  EXPECT_EQ(both.adapter(), temp_.path());
  EXPECT_EQ(both.config().at("model_type").as_string(), "llama");
  fs::remove(temp_ / "model.safetensors");
  EXPECT_EQ(ModelSource::open(temp_.path()).kind(), Kind::adapter_folder) << "config.json alone is of its base";
}

TEST_F(ModelSourceTest, SafetensorsArePreferredToGguf) {
  fs::copy_file(golden_model() / "config.json", temp_ / "config.json");
  fs::copy_file(golden_model() / "model.safetensors", temp_ / "model.safetensors");
  write_file(temp_ / "model.gguf", "GGUF");
  EXPECT_EQ(ModelSource::open(temp_.path()).weights(), temp_.path());
  fs::remove(temp_ / "model.safetensors");
  EXPECT_EQ(ModelSource::open(temp_.path()).weights(), temp_ / "model.gguf");
  write_file(temp_ / "other.gguf", "GGUF");
  EXPECT_THAT(open_error(temp_.path(), ErrorCode::bad_config),
              AllOf(HasSubstr("several GGUF files"), HasSubstr("other.gguf"), HasSubstr("a folder of its own")));
}

TEST_F(ModelSourceTest, ModelConfigOverridesFilesOfRunsAndCheckpoints) {
  copy_into(golden_model(), temp_.path());
  write_file(temp_ / "environment.json", "{}");
  EXPECT_EQ(ModelSource::open(temp_.path()).kind(), Kind::model_folder);
  write_file(temp_ / "manifest.json", "{}");
  EXPECT_EQ(ModelSource::open(temp_.path()).kind(), Kind::model_folder);
  fs::create_directories(temp_ / "step-3");
  EXPECT_EQ(ModelSource::open(temp_.path()).kind(), Kind::model_folder);
}

TEST_F(ModelSourceTest, RunsConfigOverridesWeightsInItsFolder) {
  const fs::path run = make_run();
  fs::copy_file(golden_model() / "model.safetensors", run / "model.safetensors");
  EXPECT_EQ(ModelSource::open(run).kind(), Kind::run_folder);
}

TEST_F(ModelSourceTest, EmptyAndForeignFoldersAreNamedWithTheirContents) {
  EXPECT_THAT(open_error(temp_.path(), ErrorCode::not_found),
              AllOf(HasSubstr(temp_.path().string()), HasSubstr("has no config.json"), HasSubstr("it is empty"),
                    HasSubstr("Name a Hugging Face model folder")));
  EXPECT_FALSE(ModelSource::find(temp_.path()).has_value());
  for (const char* name : {"a.txt", "b.txt", "c.txt", "d.txt", "e.txt", "f.txt"}) write_file(temp_ / name, "x");
  EXPECT_THAT(open_error(temp_.path(), ErrorCode::not_found),
              HasSubstr("it holds a.txt, b.txt, c.txt, d.txt and 2 more"));
}

TEST_F(ModelSourceTest, MissingPathsAndOtherFilesAreNamed) {
  EXPECT_THAT(open_error(temp_ / "none", ErrorCode::not_found),
              AllOf(HasSubstr("model folder " + (temp_ / "none").string()), HasSubstr("does not exist")));
  EXPECT_THAT(open_error("some-owner/some-model", ErrorCode::not_found),
              HasSubstr("`quench pull hf:some-owner/some-model`"));
  EXPECT_THAT(open_error(temp_ / "none.gguf", ErrorCode::not_found), HasSubstr("does not exist"));
  EXPECT_THAT(error_of([&] { (void)ModelSource::open(temp_ / "none", "adapter folder"); }, ErrorCode::not_found),
              HasSubstr("adapter folder " + (temp_ / "none").string()));
  EXPECT_FALSE(ModelSource::find(temp_ / "none").has_value());
  EXPECT_THAT(open_error("", ErrorCode::bad_config), HasSubstr("no model folder is named"));
  write_file(temp_ / "model.safetensors", "x");
  EXPECT_THAT(open_error(temp_ / "model.safetensors", ErrorCode::bad_config),
              AllOf(HasSubstr("is a file"), HasSubstr("name the folder that holds it")));
  fs::create_symlink(temp_ / "loop", temp_ / "loop");
  EXPECT_THAT(open_error(temp_ / "loop", ErrorCode::io), HasSubstr("cannot be read"));
}

// Root reads every folder: it takes another effective user for the attempt.
TEST_F(ModelSourceTest, FoldersThatCannotBeReadAreNamed) {
  constexpr uid_t kNobody = 65534;
  const fs::path closed = temp_ / "closed";
  fs::create_directories(closed);
  fs::permissions(temp_.path(), fs::perms::others_exec, fs::perm_options::add);
  fs::permissions(closed, fs::perms::none);
  const bool root = ::geteuid() == 0;
  if (root) {
    ASSERT_EQ(::seteuid(kNobody), 0);
  }
  const std::string error = open_error(closed, ErrorCode::io);
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  fs::permissions(closed, fs::perms::owner_all);
  EXPECT_THAT(error, AllOf(HasSubstr(closed.string()), HasSubstr("Permission denied")));
}

TEST_F(ModelSourceTest, AdaptersAreRefusedByKind) {
  nn::CausalLm model(read_model_config(golden_model()), nn::ParameterOptions{});
  EXPECT_THAT(error_of([&] { (void)load_adapter(model, golden_model(), {}); }, ErrorCode::not_found),
              AllOf(HasSubstr("expected an adapter folder, found a model folder"), HasSubstr("--format peft")));
  EXPECT_THAT(error_of([&] { (void)load_adapter(model, temp_ / "none", {}); }, ErrorCode::not_found),
              HasSubstr("adapter folder " + (temp_ / "none").string() + " does not exist"));
}

}  // namespace
}  // namespace quench
