// Verbs over a run with layers of multi-token prediction: exports have them, other verbs do not read them.

#include <gmock/gmock.h>

#include <fstream>
#include <map>

#include "core/safetensors/safetensors_folder.h"
#include "tests/apps/run_project.h"

namespace quench::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class MtpVerbs : public RunProject {
 protected:
  void SetUp() override {
    RunProject::SetUp();
    write_config(R"({"preset": "tiny-deepseek", "vocab_size": 280, "num_hidden_layers": 2,
      "num_nextn_predict_layers": 1})");
  }
  Outcome train(std::vector<std::string> more) const {
    more.insert(more.begin(), {"train", "run.json", "--training.mtp_loss_weight=0.3", "--training.steps=2",
                               "--checkpoint.interval=1", "--checkpoint.keep_latest=0"});
    return run(more);
  }
  [[nodiscard]] static bool is_mtp(const std::string& name) { return name.find("model.layers.2.") != name.npos; }
  [[nodiscard]] bool holds_layer(const std::string& folder) const {
    return std::ranges::any_of(SafetensorsFolder(work() / folder).names(), is_mtp);
  }
  // Tensors of a folder by name.
  [[nodiscard]] std::map<std::string, std::vector<std::byte>> tensors(const std::string& folder) const {
    std::map<std::string, std::vector<std::byte>> all;
    const SafetensorsFolder files(work() / folder);
    for (const std::string& name : files.names()) {
      std::vector<std::byte>& bytes = all[name];
      bytes.resize(files.at(name).entry->nbytes());
      files.at(name).read(bytes);
    }
    return all;
  }
  // Tensors of the last checkpoint, damaged such that a program that reads one of them stops.
  void destroy_mtp_tensors() const {
    const std::filesystem::path file = work() / "run/checkpoints/step-2/rank-00000.safetensors";
    const SafetensorsReader reader(file);
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    int changed = 0;
    for (const SafetensorsEntry& entry : reader.header().entries) {
      if (!is_mtp(entry.name)) continue;
      const auto place = static_cast<std::streamoff>(reader.header().data_start + entry.begin);
      bytes.seekg(place);
      const int byte = bytes.get();
      bytes.seekp(place);
      bytes.put(static_cast<char>(byte ^ 0x40));
      ++changed;
    }
    ASSERT_GT(changed, 10);
  }
};

TEST_F(MtpVerbs, TheStartReportNamesThem) {
  const Outcome with = train({});
  ASSERT_EQ(with.status, 0) << with.errors;
  EXPECT_THAT(with.output, HasSubstr("model: 1 more layer of multi-token prediction with "));
  EXPECT_THAT(with.output, HasSubstr(" of these parameters, weight 0.3 in the loss"));
  const Outcome without =
      run({"train", "run.json", "--training.steps=1", "--run.folder=plain", "--checkpoint.enable=false"});
  ASSERT_EQ(without.status, 0) << without.errors;
  EXPECT_THAT(without.output, Not(HasSubstr("multi-token prediction")));
}

TEST_F(MtpVerbs, OnlyExportsReadThem) {
  ASSERT_EQ(train({"--training.ema_decay=0.5"}).status, 0);
  const std::string before = continuation(run(generate("run")));
  expect_ok({"export", "--checkpoint", "run", "--output", "whole", "--dtype", "f32"});
  expect_ok({"export", "--checkpoint", "run", "--output", "mean", "--average", "1", "2"});
  expect_ok({"export", "--checkpoint", "run", "--output", "average", "--weights", "ema"});
  for (const char* folder : {"whole", "mean", "average"}) EXPECT_TRUE(holds_layer(folder)) << folder;
  EXPECT_EQ(read_json("whole/config.json").at("num_nextn_predict_layers").as_int(), 1);
  EXPECT_EQ(continuation(run(generate("whole"))), before);

  destroy_mtp_tensors();
  EXPECT_EQ(continuation(run(generate("run"))), before);
  const Outcome scored = run({"eval", "--model", "run", "--data", "held_out.txt"});
  EXPECT_EQ(scored.status, 0) << scored.errors;
  const Outcome refused = run({"export", "--checkpoint", "run", "--output", "again"});
  EXPECT_NE(refused.status, 0) << "the destroyed tensors were not read";
  EXPECT_THAT(refused.errors, HasSubstr("model.layers.2."));
}

// Rules of a recipe that name the layer alone do not concern verbs that leave it out.
TEST_F(MtpVerbs, ARecipeOfTheLayerAloneKeepsNoVerbFromRunning) {
  const Outcome trained = train({"--recipe.name=qat_int8", "--recipe.filter.include=[\"*eh_proj*\"]"});
  ASSERT_EQ(trained.status, 0) << trained.errors;
  (void)continuation(run(generate("run")));
  expect_ok({"eval", "--model", "run", "--data", "held_out.txt"});
  expect_ok({"export", "--checkpoint", "run", "--output", "whole"});
}

TEST_F(MtpVerbs, MergedFoldersKeepThem) {
  ASSERT_EQ(train({}).status, 0);
  expect_ok({"export", "--checkpoint", "run", "--output", "whole", "--dtype", "f32"});
  write_config(R"({"path": "whole"})", "");
  expect_ok({"train", "run.json", "--training.steps=2", "--lora.rank=2", "--lora.modules_to_save=[\"norm\"]",
             "--run.folder=lora", "--export.format=peft", "--export.folder=adapter"});
  const Outcome merged = run({"merge-lora", "--model", "run", "--adapter", "adapter", "--output", "merged"});
  ASSERT_EQ(merged.status, 0) << merged.errors;
  EXPECT_THAT(merged.errors + merged.output, Not(HasSubstr("other weights"))) << "the hash is of the rest";
  EXPECT_TRUE(holds_layer("merged"));
  expect_ok({"merge-lora", "--model", "whole", "--adapter", "adapter", "--output", "merged-folder"});
  EXPECT_TRUE(tensors("merged-folder") == tensors("merged"));
  // The run's own adapters.
  expect_ok({"merge-lora", "--model", "lora", "--output", "merged-run"});
  EXPECT_EQ(read_json("merged-run/config.json").at("num_nextn_predict_layers").as_int(), 1);
  EXPECT_TRUE(tensors("merged-run") == tensors("merged-folder"));
  expect_ok({"export", "--checkpoint", "lora", "--output", "exported-run"});
  EXPECT_TRUE(tensors("exported-run") == tensors("merged-folder"));
}

TEST_F(MtpVerbs, ExportedFoldersAreExportedWithThem) {
  ASSERT_EQ(train({}).status, 0);
  expect_ok({"export", "--checkpoint", "run", "--output", "whole", "--dtype", "f32"});
  const Outcome again = run({"export", "--model", "whole", "--output", "again"});
  ASSERT_EQ(again.status, 0) << again.errors;
  EXPECT_THAT(again.errors + again.output, Not(HasSubstr("multi-token prediction")));
  EXPECT_TRUE(tensors("again") == tensors("whole"));
  EXPECT_EQ(read_json("again/config.json").at("num_nextn_predict_layers").as_int(), 1);
  expect_ok({"export", "--model", "whole", "--output", "measured", "--perplexity", "held_out.txt"});
  EXPECT_TRUE(tensors("measured") == tensors("whole"));
  // A folder that declares layers without storing any.
  expect_ok({"train", "run.json", "--training.steps=1", "--run.folder=plain", "--export.format=hf"});
  Json config = read_json("plain/export/config.json");
  config.set("num_nextn_predict_layers", 1);
  write_file(work() / "plain/export/config.json", config.dump(2));
  expect_ok({"export", "--model", "plain/export", "--output", "plain-again"});
  EXPECT_FALSE(holds_layer("plain-again"));
  EXPECT_EQ(read_json("plain-again/config.json").at("num_nextn_predict_layers").as_int(), 0);
}

TEST_F(MtpVerbs, QuantizedExportsOfFoldersLeaveThemOut) {
  ASSERT_EQ(train({}).status, 0);
  expect_ok({"export", "--checkpoint", "run", "--output", "whole", "--dtype", "f32"});
  const Outcome written =
      run({"quantize", "--model", "whole", "--output", "quantized", "--scheme", "int8_weight_only"});
  ASSERT_EQ(written.status, 0) << written.errors;
  EXPECT_THAT(
      written.errors + written.output,
      HasSubstr("left out: multi-token prediction (num_nextn_predict_layers 1), which "
                "training.mtp_loss_weight trains (without lora), and quench merge-lora and quench export in format hf "
                "keep"));
  EXPECT_FALSE(holds_layer("quantized"));
}

// As DeepSeek-V3 is published: float8 with a scale for 128 x 128 elements, in these layers too.
TEST_F(MtpVerbs, FoldersOfFloat8AreExportedWithThem) {
  ASSERT_EQ(train({}).status, 0);
  expect_ok({"export", "--checkpoint", "run", "--output", "whole", "--dtype", "f32"});
  const std::string packed = "model.layers.2.eh_proj.weight";
  const SafetensorsFolder whole(work() / "whole");
  auto values = tensors("whole");
  const Shape shape = whole.at(packed).entry->shape;
  ASSERT_LE(std::max(shape[0], shape[1]), 128) << "one block";
  constexpr std::byte kOne{0x38};  // e4m3
  const std::vector<std::byte> codes(static_cast<std::size_t>(shape.numel()), kOne);
  const float scale = 0.375f;
  std::vector<SafetensorsItem> items{{packed, DType::f8_e4m3, shape, codes},
                                     {packed + "_scale_inv", DType::f32, {1, 1}, std::as_bytes(std::span(&scale, 1))}};
  for (const auto& [name, bytes] : values)
    if (name != packed) items.push_back({name, *whole.at(name).entry->dtype, whole.at(name).entry->shape, bytes});
  write_safetensors_folder(work() / "float8", items);
  Json config = read_json("whole/config.json");
  config.set("quantization_config", Json::parse(R"({"activation_scheme": "dynamic", "fmt": "e4m3",
    "quant_method": "fp8", "weight_block_size": [128, 128]})"));
  write_file(work() / "float8/config.json", config.dump(2));
  expect_ok({"export", "--model", "float8", "--output", "again"});
  const std::vector<float> expected(codes.size(), scale);
  const auto bytes = std::as_bytes(std::span(expected));
  values[packed].assign(bytes.begin(), bytes.end());
  EXPECT_TRUE(tensors("again") == values);
}

// As llama.cpp's converter: the architecture deepseek2 has no layers of multi-token prediction.
TEST_F(MtpVerbs, GgufFilesLeaveThemOut) {
  ASSERT_EQ(train({}).status, 0);
  const Outcome written =
      run({"export", "--checkpoint", "run", "--output", "gguf/model.gguf", "--format", "gguf", "--scheme", "q8_0"});
  ASSERT_EQ(written.status, 0) << written.errors;
  EXPECT_THAT(written.errors + written.output,
              HasSubstr("left out: multi-token prediction (num_nextn_predict_layers 1), which format gguf does not "
                        "store"));
  const std::string file = read_file(work() / "gguf/model.gguf");
  EXPECT_NE(file.find("blk.1.attn_norm.weight"), file.npos);
  EXPECT_EQ(file.find("blk.2."), file.npos);
  // The file of the same weights without these layers.
  expect_ok({"export", "--checkpoint", "run", "--output", "whole", "--dtype", "f32"});
  const Outcome again =
      run({"export", "--checkpoint", "whole", "--output", "again/model.gguf", "--format", "gguf", "--scheme", "q8_0"});
  ASSERT_EQ(again.status, 0) << again.errors;
  // Neither counts them: "wrote FILE (f32, q8_0 as gguf, 326,352 parameters, ...)".
  EXPECT_EQ(written.output.substr(written.output.find(" (f32")), again.output.substr(again.output.find(" (f32")));
  EXPECT_TRUE(file == read_file(work() / "again/model.gguf"));
}

}  // namespace
}  // namespace quench::testing
