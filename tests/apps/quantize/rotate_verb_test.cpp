// --rotate from end to end: logits of the written folder, with and without a scheme.

#include <gmock/gmock.h>

#include <cmath>

#include "core/json/json.h"
#include "core/safetensors/safetensors.h"
#include "export/methods/method_table.h"
#include "tests/apps/run_project.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Outcome;

class RotateVerb : public ::testing::Test {
 protected:
  Outcome run(const std::vector<std::string>& arguments) { return testing::run_program(folder_.path(), arguments); }
  Outcome write(const std::string& verb, const fs::path& model, const std::string& output,
                std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{verb, "--model", model.string(), "--rotate", "--output", output};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }

  std::vector<float> logits(const std::string& model) {
    std::vector<std::int64_t> ids(16);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(7 * i % 60);
    write_safetensors(folder_ / "input.safetensors",
                      {{"input_ids", DType::i64, {1, 16}, std::as_bytes(std::span(ids))}});
    const Outcome done = run({"forward", "--model", model, "--input", "input.safetensors", "--output",
                              "logits.safetensors", "--overwrite", "--device", "cpu", "--dtype", "f32"});
    EXPECT_EQ(done.status, 0) << done.errors;
    const SafetensorsReader reader(folder_ / "logits.safetensors");
    const SafetensorsEntry& entry = reader.at("logits");
    std::vector<float> values(static_cast<std::size_t>(entry.shape.numel()));
    reader.read(entry, std::as_writable_bytes(std::span(values)));
    return values;
  }
  // Norm of the difference by the norm.
  static double distance(const std::vector<float>& a, const std::vector<float>& b) {
    double apart = 0, norm = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      apart += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
      norm += std::pow(static_cast<double>(b[i]), 2);
    }
    return std::sqrt(apart / norm);
  }
  fs::path golden(const std::string& name) const { return testing::golden_dir() / "models" / name; }

  testing::TempDir folder_;
};

TEST_F(RotateVerb, APlainFolderHasTheSameLogits) {
  for (const char* name : {"llama", "llama31_tied", "mixtral"}) {
    SCOPED_TRACE(name);
    const Outcome done = write("export", golden(name), name, {"--format", "hf", "--dtype", "f32"});
    ASSERT_EQ(done.status, 0) << done.errors;
    EXPECT_THAT(done.output, HasSubstr("rotated by Hadamard matrices"));
    EXPECT_LT(distance(logits(name), logits(golden(name).string())), 1e-4);
    EXPECT_THAT(testing::read_file(folder_ / name / "README.md"), HasSubstr("| Rotation |"));
  }
  const Json config = Json::parse(testing::read_file(folder_ / "llama31_tied/config.json"));
  EXPECT_EQ(config.at("tie_word_embeddings"), Json(false));
}

TEST_F(RotateVerb, TheBytesOfAnUntiedHeadAreReported) {
  const Outcome done = write("quantize", golden("llama31_tied"), "out", {"--scheme", "int8_weight_only", "--json"});
  ASSERT_EQ(done.status, 0) << done.errors;
  const Json rotation = Json::parse(done.output).at("rotation");
  const Json config = Json::parse(testing::read_file(golden("llama31_tied") / "config.json"));
  EXPECT_EQ(rotation.at("matrix"), Json("hadamard"));
  EXPECT_GE(rotation.at("head_bytes").as_int(),
            2 * config.at("vocab_size").as_int() * config.at("hidden_size").as_int());
  EXPECT_THAT(write("quantize", golden("llama31_tied"), "text", {"--scheme", "int8_weight_only"}).output,
              HasSubstr("the head, tied to the embedding table before, is a weight of its own"));
}

TEST_F(RotateVerb, EveryMethodAndFormatTakesTheRotatedModel) {
  const std::string records = (folder_ / "records.jsonl").string();
  std::string lines;
  for (int line = 0; line < 4; ++line) {
    lines += "{\"input_ids\": [1";
    for (int i = 1; i < 32; ++i) lines += fmt::format(", {}", (i * i + 5 * line) % 100);
    lines += "]}\n";
  }
  testing::write_file(records, lines);
  const std::vector<float> plain = logits(golden("llama").string());
  for (const Quantizer& quantizer : quantizers()) {
    SCOPED_TRACE(quantizer.name);
    std::vector<std::string> more{"--scheme", "int8dyn_int8", "--method", std::string(quantizer.name),
                                  "--dtype",  "f32"};
    if (quantizer.calibrated)
      more.insert(more.end(), {"--calibration", records, "--calibration-samples", "4", "--calibration-seq-len", "32"});
    const Outcome done = write("quantize", golden("llama"), std::string(quantizer.name), more);
    ASSERT_EQ(done.status, 0) << done.errors;
    EXPECT_LT(distance(logits(std::string(quantizer.name)), plain), 0.1);
  }
  ASSERT_EQ(write("quantize", golden("llama"), "gguf", {"--scheme", "q8_0", "--format", "gguf"}).status, 0);
  EXPECT_LT(distance(logits("gguf"), plain), 0.05);
}

TEST_F(RotateVerb, WhatARotationGivesUpIsRefused) {
  const auto refused = [&](const Outcome& done, std::string_view words) {
    EXPECT_NE(done.status, 0);
    EXPECT_THAT(done.errors, HasSubstr(std::string(words)));
    EXPECT_FALSE(fs::exists(folder_ / "out"));
  };
  const fs::path gemma = testing::source_dir() / "tests/reference/models/gemma2";
  refused(write("export", gemma, "out"), "norm post_attention_layernorm of layer 0");
  refused(write("export", golden("llama"), "out", {"--sparsity", "2:4"}), "--rotate and --sparsity");
  refused(write("quantize", golden("llama"), "out", {"--scheme", "q4_0", "--format", "gguf", "--imatrix", "x.gguf"}),
          "--rotate and --imatrix");
  refused(write("quantize", golden("llama"), "out", {"--scheme", "int8_weight_only", "--model-free"}),
          "--rotate is not for --model-free");
  refused(write("export", golden("llama"), "out", {"--format", "peft"}), "--rotate is for whole models");
  ASSERT_EQ(
      run({"quantize", "--model", golden("llama").string(), "--scheme", "int8_weight_only", "--output", "int8"}).status,
      0);
  refused(write("export", folder_ / "int8", "out"), "is quantized already");
}

}  // namespace
}  // namespace quench
