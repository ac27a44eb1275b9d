// Adding a quantization scheme and an export format: from their names to a folder on disk.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/system/choice_table.h"
#include "core/system/file.h"
#include "export/table/format.h"
#include "tests/seams/refusal.h"
#include "tests/testing.h"
#include "train/model_folder/model_folder.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::refusal;
using testing::TempDir;

constexpr std::string_view kListName = "model.list";

// A line for each tensor: name, shape and what is stored.
Json write_list(const ExportJob& job) {
  std::string text;
  for (const ModelTensor& tensor : job.tensors)
    text += fmt::format("{} {} {}\n", tensor.name, tensor.shape.to_string(),
                        tensor.scheme != nullptr ? tensor.scheme->name : std::string(to_string(tensor.dtype)));
  write_file_atomically(job.folder / kListName, text);
  return {};
}

std::string float8_alone(const Scheme& scheme) {
  return scheme.weights.element ? "" : "it lists float8 alone";
}

const Registered<Scheme> kAddedScheme{
    {"float8_weight_only_g16",
     "float8, a scale for groups of 16",
     {.element = ElementFormat::e4m3, .bits = 8, .sharing = ScaleSharing::group, .group_size = 16},
     std::nullopt}};

const Registered<ExportFormat> kAddedFormat{
    {"list", "one line for each tensor", false, std::nullopt, float8_alone, write_list, kListName}};

nn::CausalLm small_model() {
  return nn::CausalLm(nn::parse_model_config(Json::parse(R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 16,
        "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "tie_word_embeddings": false})"),
                                             "config.json"),
                      nn::ParameterOptions{});
}

TEST(AddedExport, WritesAFolderInTheAddedFormatAndScheme) {
  const TempDir dir;
  nn::CausalLm model = small_model();
  model.initialize(1);
  ModelFolderOptions options{.dtype = DType::f32};
  options.format = &require_export_format("list", "--format");
  options.quantization = QuantizationRules{.scheme = &require_scheme("float8_weight_only_g16", "--scheme")};
  const auto report = save_model_folder(model, {.folder = dir / "out"}, options);
  const std::string list = testing::read_file(dir / "out" / std::string(kListName));
  EXPECT_THAT(list, HasSubstr("model.layers.0.mlp.up_proj.weight [32, 16] float8_weight_only_g16\n"));
  EXPECT_THAT(list, HasSubstr("model.norm.weight [16] f32\n"));
  ASSERT_FALSE(report.layers.empty());
  EXPECT_GT(report.layers.front().sqnr, 28) << "a scale for sixteen elements of e4m3";
  // Its file is known as that of an export: the next one takes the folder's place.
  EXPECT_NO_THROW(save_model_folder(model, {.folder = dir / "out"}, {.dtype = DType::f32}));
  EXPECT_FALSE(fs::exists(dir / "out" / std::string(kListName)));
  EXPECT_TRUE(fs::exists(dir / "out" / "model.safetensors"));
}

TEST(AddedExport, IsNamedInErrors) {
  EXPECT_THAT(refusal([] { (void)require_export_format("lists", "--format"); }), HasSubstr("gguf, list"));
  EXPECT_THAT(refusal([] { (void)require_scheme("int9", "--scheme"); }), HasSubstr("float8_weight_only_g16"));
  EXPECT_THAT(refusal([] {
                check_format_and_scheme(require_export_format("list", "--format"), find_scheme("int8_weight_only"));
              }),
              HasSubstr("it lists float8 alone"));
}

}  // namespace
}  // namespace quench
