// Values that no exported folder may hold: NaN, infinity, and weights that a scheme makes 0.

#include <gmock/gmock.h>

#include <cmath>

#include "core/safetensors/safetensors.h"
#include "tests/apps/nonfinite_model.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_program;

// A copy of a folder with one value of a tensor of its weights file replaced.
void set_value(const fs::path& from, const fs::path& to, const std::string& file, const std::string& name,
               std::size_t at, float value) {
  fs::remove_all(to);
  fs::copy(from, to, fs::copy_options::recursive);
  const SafetensorsReader reader(from / file);
  const SafetensorsEntry& entry = reader.at(name);
  ASSERT_EQ(entry.dtype, DType::f32);
  std::vector<float> values(static_cast<std::size_t>(entry.shape.numel()));
  reader.read(entry, std::as_writable_bytes(std::span(values)));
  const auto text = [&] {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  };
  const std::string before = text();
  values.at(at) = value;
  std::string bytes = testing::read_file(from / file);
  bytes.replace(bytes.find(before), before.size(), text());
  testing::write_file(to / file, bytes);
}

class ExportValues : public ::testing::Test {
 protected:
  // The error of an export that leaves no folder.
  std::string refused(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--output", "out"});
    const Outcome done = run_program(folder_.path(), arguments);
    EXPECT_NE(done.status, 0) << done.output;
    EXPECT_FALSE(fs::exists(folder_ / "out")) << done.output;
    return done.errors;
  }

  testing::TempDir folder_;
  fs::path model_ = testing::golden_dir() / "models/llama";
};

TEST_F(ExportValues, NanAndInfinityAreRefusedByEveryFormatWithTheTensorsName) {
  const std::string norm = "model.layers.0.input_layernorm.weight", projection = "model.layers.0.mlp.down_proj.weight";
  for (const float value : {NAN, INFINITY, -INFINITY})
    for (const std::string& name : {norm, projection}) {
      set_value(model_, folder_ / "broken", "model.safetensors", name, 2, value);
      EXPECT_THAT(refused({"export", "--model", "broken"}), HasSubstr(name + " holds NaN or infinity"));
      EXPECT_THAT(refused({"export", "--model", "broken", "--format", "gguf"}),
                  HasSubstr(name + " holds NaN or infinity"));
    }
  for (const std::vector<std::string>& how : {std::vector<std::string>{"quantize", "--scheme", "int8_weight_only"},
                                              {"quantize", "--scheme", "int8_weight_only", "--format", "torchao"},
                                              {"quantize", "--scheme", "q8_0", "--format", "gguf"},
                                              {"export", "--format", "sparse24", "--sparsity", "2:4"}})
    for (const std::string& name : {norm, projection}) {
      set_value(model_, folder_ / "broken", "model.safetensors", name, 2, NAN);
      std::vector<std::string> arguments = how;
      arguments.insert(arguments.end(), {"--model", "broken"});
      EXPECT_THAT(refused(arguments), HasSubstr(name + " holds NaN or infinity"));
    }
}

TEST_F(ExportValues, AdaptersThatAreNotFiniteAreNotMerged) {
  const fs::path adapter = testing::golden_dir() / "models/llama_lora";
  std::string tensor;
  {
    const SafetensorsReader reader(adapter / "adapter_model.safetensors");
    for (const SafetensorsEntry& entry : reader.header().entries)
      if (entry.name.find("lora_B") != std::string::npos && entry.name.find("q_proj") != std::string::npos)
        tensor = entry.name;
  }
  ASSERT_FALSE(tensor.empty());
  set_value(adapter, folder_ / "adapter", "adapter_model.safetensors", tensor, 1, NAN);
  EXPECT_THAT(refused({"merge-lora", "--model", model_.string(), "--adapter", "adapter"}),
              HasSubstr("q_proj.weight holds NaN or infinity"));
}

TEST_F(ExportValues, WhatADtypeOrAScaleCannotHoldIsNamed) {
  const std::string name = "model.layers.0.mlp.down_proj.weight";
  set_value(model_, folder_ / "large", "model.safetensors", name, 2, 1e5f);
  EXPECT_THAT(refused({"export", "--model", "large", "--dtype", "f16"}),
              HasSubstr(name + " holds 100000 at [0, 2], which f16 cannot hold"));
  set_value(model_, folder_ / "large", "model.safetensors", name, 2, 1e8f);
  for (const auto& [scheme, block] : {std::pair{"q8_0", "Q8_0"}, {"q4_0", "Q4_0"}})
    EXPECT_THAT(refused({"quantize", "--model", "large", "--format", "gguf", "--scheme", scheme}),
                HasSubstr(fmt::format("{} holds {} at [0, 2], for which the scale of a {} block overflows; use "
                                      "mxfp4_weight_only, or exclude the layer",
                                      name, 1e8f, block)));
}

TEST_F(ExportValues, SymmetricOneBitIsRefusedByName) {
  EXPECT_THAT(refused({"quantize", "--model", model_.string(), "--scheme", "int1_weight_only_g32"}),
              HasSubstr("--scheme 'int1_weight_only_g32' is not a scheme: one bit without a zero point"));
}

// Also under --overwrite: they hold weights that were just read.
TEST_F(ExportValues, PartsOfTheSourceAreNotReplaced) {
  const fs::path parts = folder_ / "parts";
  fs::copy(testing::source_dir() / "tests/reference/models/gguf_split", parts);
  const std::string first = (parts / "model-00001-of-00003.gguf").string();
  const std::string before = testing::read_file(parts / "model-00002-of-00003.gguf");
  const Outcome done = run_program(folder_.path(), {"export", "--model", first, "--format", "gguf", "--overwrite",
                                                    "--output", (parts / "model-00002-of-00003.gguf").string()});
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.errors, HasSubstr("which the export must not touch"));
  EXPECT_EQ(testing::read_file(parts / "model-00002-of-00003.gguf"), before);
}

}  // namespace
}  // namespace quench
