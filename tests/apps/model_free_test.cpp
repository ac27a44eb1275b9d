// quench quantize --model-free: files of an architecture that is not known.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json/json.h"
#include "core/number/random.h"
#include "core/safetensors/safetensors_folder.h"
#include "tests/apps/program.h"
#include "tests/testing.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Outcome;

class ModelFree : public ::testing::Test {
 protected:
  ModelFree() {
    const auto add = [&](const std::string& name, const Shape& shape) {
      std::vector<bfloat16>& values = values_[name];
      for (std::int64_t i = 0; i < shape.numel(); ++i)
        values.emplace_back(0.05f * random_normal({7, values_.size(), 0}, static_cast<std::uint64_t>(i)));
      items_.push_back({name, DType::bf16, shape, std::as_bytes(std::span(values))});
    };
    add("backbone.tokens.weight", {96, 64});  // an embedding by its rows
    add("backbone.blocks.0.mixer.in_proj.weight", {64, 64});
    add("backbone.blocks.0.mixer.conv.weight", {64, 1, 4});
    add("backbone.blocks.0.router.weight", {8, 64});
    add("backbone.blocks.0.odd.weight", {64, 31});
    add("backbone.blocks.1.mixer.in_proj.weight", {64, 64});
    add("backbone.norm.weight", {64});
    write_safetensors_folder(folder_ / "model", items_, 20'000);
    write_config(R"({"model_type": "unheard_of", "vocab_size": 96, "tie_word_embeddings": true})");
    testing::write_file(folder_ / "model/modeling.py", "pass\n");
  }

  void write_config(const std::string& text) const { testing::write_file(folder_ / "model/config.json", text); }

  Outcome quantize(const std::string& scheme, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"quantize", "--model",  "model", "--scheme",
                                       scheme,     "--output", "out",   "--model-free"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return testing::run_program(folder_.path(), arguments);
  }

  [[nodiscard]] static std::vector<std::byte> bytes_of(const SafetensorsFolder& files, const std::string& name) {
    std::vector<std::byte> bytes(files.at(name).entry->nbytes());
    files.at(name).read(bytes);
    return bytes;
  }

  testing::TempDir folder_;
  std::map<std::string, std::vector<bfloat16>> values_;
  std::vector<SafetensorsItem> items_;
};

TEST_F(ModelFree, RoundsMatricesAndCopiesAllElse) {
  const Outcome done = quantize("int4_weight_only_g32", {"--json", "--max-shard-gb", "0.00002"});
  ASSERT_EQ(done.status, 0) << done.errors;
  const Json report = Json::parse(done.output);
  EXPECT_EQ(report.at("quantized").as_int(), 2);
  EXPECT_EQ(report.at("kept").as_int(), 5);
  EXPECT_THAT(report.at("unfit").at("backbone.blocks.0.odd").as_string(), HasSubstr("groups of 32 do not divide"));
  const SafetensorsFolder before(folder_ / "model"), after(folder_ / "out");
  for (const std::string name :
       {"backbone.tokens.weight", "backbone.blocks.0.mixer.conv.weight", "backbone.norm.weight",
        "backbone.blocks.0.router.weight", "backbone.blocks.0.odd.weight"})
    EXPECT_EQ(bytes_of(before, name), bytes_of(after, name)) << name;
  const std::string layer = "backbone.blocks.1.mixer.in_proj";
  EXPECT_FALSE(after.find(layer + ".weight").has_value());
  EXPECT_EQ(after.at(layer + ".weight_packed").entry->shape, (Shape{64, 8}));
  EXPECT_EQ(after.at(layer + ".weight_scale").entry->shape, (Shape{64, 2}));
  const Json config = Json::parse_file(folder_ / "out/config.json");
  EXPECT_EQ(config.at("model_type").as_string(), "unheard_of");
  const Json& quantization = config.at("quantization_config");
  EXPECT_EQ(quantization.at("config_groups").at("group_0").at("targets").dump(), R"(["Linear"])");
  EXPECT_EQ(quantization.at("ignore").as_array().size(), 4u);
  EXPECT_TRUE(fs::exists(folder_ / "out/modeling.py"));
  EXPECT_TRUE(fs::exists(folder_ / "out/model.safetensors.index.json"));
}

TEST_F(ModelFree, SchemesOfTheFormatAreWritten) {
  for (const char* scheme : {"int8_weight_only", "float8_dynamic", "nvfp4_weight_only", "mxfp8"}) {
    const Outcome done = quantize(scheme, {"--exclude", "*.odd"});
    EXPECT_EQ(done.status, 0) << scheme << done.errors;
    fs::remove_all(folder_ / "out");
  }
}

TEST_F(ModelFree, RefusesWhatItCannotTellOrDo) {
  const auto refused = [&](const Outcome& done) {
    EXPECT_NE(done.status, 0);
    EXPECT_FALSE(fs::exists(folder_ / "out"));
    return done.errors;
  };
  EXPECT_THAT(refused(quantize("nvfp4")), AllOf(HasSubstr("needs calibration"), HasSubstr("nvfp4_weight_only")));
  EXPECT_THAT(refused(quantize("q4_0", {"--format", "gguf"})), HasSubstr("--format is not for --model-free"));
  EXPECT_THAT(refused(quantize("int8_weight_only", {"--method", "hqq"})),
              HasSubstr("--method is not for --model-free"));
  EXPECT_THAT(refused(quantize("int8_weight_only", {"--rule", "*.none=int8_weight_only"})),
              HasSubstr("'*.none' matches no linear layer"));
  EXPECT_THAT(refused(quantize("int8_weight_only", {"--exclude", "*.none"})),
              HasSubstr("the exclusion '*.none' matches no linear layer"));
  write_config(R"({"model_type": "unheard_of", "tie_word_embeddings": true})");
  EXPECT_THAT(refused(quantize("int8_weight_only")), AllOf(HasSubstr("config.json: tie_word_embeddings is true"),
                                                           HasSubstr("which tensor the head shares is not known")));
  write_config(R"({"vocab_size": 96, "quantization_config": {"quant_method": "gptq"}})");
  EXPECT_THAT(refused(quantize("int8_weight_only")), HasSubstr("is quantized already"));
}

}  // namespace
}  // namespace quench
