// Model::save() and convert_model(): formats, adapters, refused targets.

#include <gmock/gmock.h>

#include "tests/train/run/sample_run.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/model/model.h"
#include "train/model_folder/peft_folder.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::read_file;

fs::path golden_folder() {
  return testing::golden_dir() / "models/llama";
}
fs::path golden_adapter() {
  return testing::golden_dir() / "models/llama_lora";
}

SaveTarget quantized(const fs::path& path, const std::string& scheme) {
  SaveTarget target{.path = path, .format = "compressed-tensors"};
  target.quantization.scheme = scheme;
  return target;
}

template <class Call>
std::string refusal(const Call& call, ErrorCode code = ErrorCode::bad_config) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

const ModelOptions kCpu{.device = "cpu"};

class SaveModel : public ::testing::Test {
 protected:
  testing::TempDir temp_;
};

TEST_F(SaveModel, WritesWhatItOpened) {
  Model model = Model::open(golden_folder(), kCpu);
  const SavedModel saved = model.save({.path = temp_ / "out"});
  EXPECT_EQ(saved.path, temp_ / "out");
  EXPECT_EQ(saved.format, "hf");
  EXPECT_EQ(saved.scheme, "");
  EXPECT_EQ(saved.parameters, model.config().parameter_count());
  const SavedModel half = model.save({.path = temp_ / "half", .dtype = "f16"});
  EXPECT_EQ(half.dtype, DType::f16);
  EXPECT_LE(half.report.file_bytes, saved.report.file_bytes);
  const Model again = Model::open(temp_ / "out", kCpu);
  EXPECT_EQ(again.config().parameter_count(), saved.parameters);
}

TEST_F(SaveModel, EvaluatesAndQuantizesARunWithItsTokenizer) {
  const testing::SampleRun sample;
  sample.run(sample.config("run", {"--evaluation.interval=0", "--lora.rank=2"}));
  const std::vector<std::string> text{(sample.folder() / "train.txt").string()};
  Model model = Model::open(sample.folder() / "run", kCpu);
  const double adapted = model.perplexity(text);
  model.merge_adapters();
  EXPECT_NEAR(model.perplexity(text), adapted, 1e-3 * adapted);
  SaveTarget target = quantized(temp_ / "int8", "int8_weight_only");
  target.perplexity = text;
  const SavedModel saved = model.save(target);
  EXPECT_FALSE(saved.report.layers.empty());
  EXPECT_NEAR(saved.report.perplexity_before.value_or(0), adapted, 1e-3 * adapted);
  const Model written = Model::open(saved.path, kCpu);
  EXPECT_TRUE(written.is_quantized());
  EXPECT_NEAR(written.perplexity(text), saved.report.perplexity.value_or(0), 1e-3 * adapted);
  EXPECT_THAT(read_file(saved.path / "README.md"), HasSubstr("train.txt"));
}

TEST_F(SaveModel, ReadsUnchangedWeightsOfACheckpointOneByOne) {
  const testing::TinyRun tiny;
  tiny.run(tiny.config("run", {"--training.steps=2", "--checkpoint.interval=2"}));
  (void)convert_model(tiny.folder("run"), kCpu, {.path = temp_ / "streamed"});
  (void)Model::open(tiny.folder("run"), kCpu).save({.path = temp_ / "whole"});
  for (const char* name : {"config.json", "model.safetensors"})
    EXPECT_EQ(read_file(temp_ / "streamed" / name), read_file(temp_ / "whole" / name)) << name;
  Model on_demand = Model::open(tiny.folder("run"), {.on_demand = true});
  EXPECT_THAT(refusal([&] { (void)on_demand.save(quantized(temp_ / "int8", "int8_weight_only")); },
                      ErrorCode::invalid_argument),
              HasSubstr("was opened on demand"));
}

TEST_F(SaveModel, WritesAdaptersAlone) {
  const testing::TinyRun tiny;
  tiny.run(tiny.config("run", {"--training.steps=2", "--checkpoint.interval=2", "--lora.rank=2"}));
  for (const char* dtype : {"auto", "f16"}) {
    const SavedModel saved =
        convert_model(tiny.folder("run"), kCpu, {.path = temp_ / dtype, .format = "peft", .dtype = dtype});
    EXPECT_EQ(saved.adapted_layers, 14u);
  }
  EXPECT_LT(fs::file_size(temp_ / "f16" / kAdapterWeightsName), fs::file_size(temp_ / "auto" / kAdapterWeightsName));
  tiny.run(tiny.config("whole", {"--training.steps=2", "--checkpoint.interval=2"}));
  EXPECT_THAT(
      refusal([&] { (void)convert_model(tiny.folder("whole"), kCpu, {.path = temp_ / "none", .format = "peft"}); }),
      HasSubstr("the checkpoint holds a whole model, no adapters: format peft has nothing to write"));
}

TEST_F(SaveModel, NamesTheBaseOfAnAdapterThatItApplied) {
  Model model = Model::open(golden_folder(), kCpu);
  model.use_adapter(golden_adapter());
  (void)model.save({.path = temp_ / "adapter", .format = "peft"});
  EXPECT_EQ(ModelSource::open(temp_ / "adapter").adapter_base(), golden_folder().string());
}

TEST_F(SaveModel, NamesMembersAsTheCallerDoes) {
  SaveTarget target{.path = temp_ / "out", .format = "gguff"};
  EXPECT_THAT(refusal([&] { check_save_target(target); }), HasSubstr("format 'gguff'"));
  target.key = [](std::string_view member) { return "--" + std::string(member); };
  EXPECT_THAT(refusal([&] { check_save_target(target); }), HasSubstr("--format 'gguff'"));
  target.format = "compressed-tensors";
  target.quantization.scheme = "int9";
  EXPECT_THAT(refusal([&] { check_save_target(target); }), HasSubstr("--scheme"));
  target.quantization.scheme = "int8_weight_only";
  target.dtype = "f16";
  EXPECT_THAT(refusal([&] { check_save_target(target); }),
              HasSubstr("--dtype f16 is for weights that are not quantized"));
  target.format = "peft";
  EXPECT_THAT(refusal([&] { check_save_target(target); }),
              AllOf(HasSubstr("--scheme is for whole models"), HasSubstr("--format peft writes adapters alone")));
}

TEST_F(SaveModel, RefusesPlacesBeforeItReads) {
  testing::write_file(temp_ / "notes.txt", "mine");
  EXPECT_THAT(refusal([&] { (void)convert_model("nowhere", kCpu, {.path = temp_.path()}); }),
              HasSubstr("has files that are not part of an export: notes.txt"));
  Model model = Model::open(golden_folder(), kCpu);
  EXPECT_THAT(refusal([&] { (void)model.save({.path = golden_folder(), .overwrite = true}); }),
              HasSubstr("which the export must not touch"));
}

TEST_F(SaveModel, RefusesToQuantizeTwice) {
  (void)convert_model(golden_folder(), kCpu, quantized(temp_ / "int8", "int8_weight_only"));
  EXPECT_THAT(
      refusal([&] { (void)convert_model(temp_ / "int8", kCpu, quantized(temp_ / "again", "int8_weight_only")); }),
      HasSubstr("is quantized already: use the unquantized model, or allow_requantize for its rounded values"));
}

TEST_F(SaveModel, QuantizesRoundedValuesWhereAllowed) {
  (void)convert_model(golden_folder(), kCpu, quantized(temp_ / "int8", "int8_weight_only"));
  (void)convert_model(temp_ / "int8", kCpu, {.path = temp_ / "values"});
  SaveTarget again = quantized(temp_ / "again", "int4_weight_only_g32");
  again.allow_requantize = true;
  (void)convert_model(temp_ / "int8", kCpu, again);
  (void)convert_model(temp_ / "values", kCpu, quantized(temp_ / "once", "int4_weight_only_g32"));
  EXPECT_EQ(testing::read_file(temp_ / "again/model.safetensors"),
            testing::read_file(temp_ / "once/model.safetensors"));
}

TEST_F(SaveModel, RefusesACheckpointWithoutItsTrainedScheme) {
  const testing::TinyRun tiny;
  tiny.run(tiny.config("run", {"--training.steps=2", "--checkpoint.interval=2"}));
  Model model = Model::open(tiny.folder("run"), {.device = "cpu", .mtp = MtpLayers::left_out});
  EXPECT_THAT(refusal([&] { (void)model.save({.path = temp_ / "out"}); }, ErrorCode::invalid_argument),
              HasSubstr("without its MTP layers and trained scheme"));
}

}  // namespace
}  // namespace quench
