// Quantized models from end to end: written, read back, evaluated, continued.

#include <gmock/gmock.h>

#include <cmath>

#include "core/json/json.h"
#include "core/safetensors/safetensors.h"
#include "tests/apps/run_project.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_program;
using testing::TempDir;

class QuantizeVerb : public ::testing::Test {
 protected:
  Outcome run(const std::vector<std::string>& arguments) { return run_program(folder_.path(), arguments); }

  Outcome quantize(const std::string& scheme, const std::string& output, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"quantize", "--model", model_.string(), "--scheme", scheme, "--output", output};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }

  std::vector<float> logits(const std::string& model) {
    const Outcome done = run({"forward", "--model", model, "--input", input().string(), "--output",
                              "logits.safetensors", "--overwrite", "--device", "cpu", "--dtype", "f32"});
    EXPECT_EQ(done.status, 0) << done.errors;
    const SafetensorsReader reader(folder_ / "logits.safetensors");
    const SafetensorsEntry& entry = reader.at("logits");
    std::vector<float> values(static_cast<std::size_t>(entry.shape.numel()));
    reader.read(entry, std::as_writable_bytes(std::span(values)));
    return values;
  }

  fs::path input() {
    std::vector<std::int64_t> ids(16);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(7 * i % 60);
    write_safetensors(folder_ / "input.safetensors",
                      {{"input_ids", DType::i64, {1, 16}, std::as_bytes(std::span(ids))}});
    return folder_ / "input.safetensors";
  }

  TempDir folder_;
  fs::path model_ = testing::golden_dir() / "models/llama";
};

TEST_F(QuantizeVerb, AGgufFileIsAModelAlone) {
  ASSERT_EQ(quantize("q8_0", "gguf", {"--format", "gguf"}).status, 0);
  fs::create_directory(folder_ / "alone");
  fs::copy_file(folder_ / "gguf/model.gguf", folder_ / "alone/any.gguf");
  EXPECT_EQ(logits("alone"), logits("gguf"));
  for (const char* folder : {"gguf", "alone"}) {
    const Outcome seen = run({"inspect", folder, "--json"});
    ASSERT_EQ(seen.status, 0) << seen.errors;
    const Json json = Json::parse(seen.output);
    EXPECT_EQ(json.at("kind"), Json("model folder"));
    EXPECT_GT(json.at("bytes").at("Q8_0").as_int(), 0);
    EXPECT_GT(json.at("layers").as_int(), 0);
  }
  const Outcome exported = run({"export", "--model", "alone", "--output", "plain"});
  EXPECT_EQ(exported.status, 0);
  EXPECT_THAT(exported.errors, Not(HasSubstr("ignored"))) << "the file is the model, no stray checkpoint";
  fs::copy_file(folder_ / "alone/any.gguf", folder_ / "alone/second.gguf");
  EXPECT_THAT(run({"export", "--model", "alone", "--output", "other"}).errors, HasSubstr("holds several GGUF files"));
}

TEST_F(QuantizeVerb, AGgufFileIsReadAndWrittenByItsName) {
  ASSERT_EQ(quantize("q8_0", "out/m.gguf", {"--format", "gguf"}).status, 0);
  EXPECT_TRUE(fs::is_regular_file(folder_ / "out/m.gguf"));
  ASSERT_EQ(quantize("q8_0", "folder", {"--format", "gguf"}).status, 0);
  EXPECT_EQ(testing::read_file(folder_ / "out/m.gguf"), testing::read_file(folder_ / "folder/model.gguf"));
  EXPECT_EQ(logits("out/m.gguf"), logits("folder"));
  // Other files next to it are not its own.
  fs::copy_file(folder_ / "out/m.gguf", folder_ / "out/second.gguf");
  EXPECT_EQ(logits("out/m.gguf"), logits("folder"));
  ASSERT_EQ(run({"export", "--model", "out/m.gguf", "--output", "plain"}).status, 0);
  EXPECT_TRUE(fs::exists(folder_ / "plain/model.safetensors"));
  EXPECT_EQ(quantize("q8_0", "out/m.gguf", {"--format", "gguf"}).status, 0) << "a GGUF file is replaced";
  EXPECT_THAT(run({"export", "--model", model_.string(), "--output", "m.gguf"}).errors,
              HasSubstr("m.gguf names a GGUF file, and format hf writes a folder"));
  testing::write_file(folder_ / "notes.gguf", "notes");
  EXPECT_THAT(quantize("q8_0", "notes.gguf", {"--format", "gguf"}).errors, HasSubstr("is not a GGUF file"));
  EXPECT_THAT(run({"export", "--model", "out/m.gguf", "--format", "gguf", "--output", "out/m.gguf"}).errors,
              HasSubstr("which the export must not touch"));
}

// Sizes are those of the files: TorchAO stores a byte for 4 bits, packed integers of 3 bits fill words of 32.
TEST_F(QuantizeVerb, ReportedSizesMatchFiles) {
  for (const auto& [scheme, format] : {std::pair{"int4_weight_only_g32", "torchao"},
                                       {"int3_weight_only_g32", "compressed-tensors"},
                                       {"int8dyn_int4_g32", "compressed-tensors"},
                                       {"int3_weight_only_g32", "gguf"},
                                       {"q8_0", "gguf"}}) {
    SCOPED_TRACE(fmt::format("{} {}", scheme, format));
    const std::string output = fmt::format("{}-{}", scheme, format);
    const Outcome made = quantize(scheme, output, {"--format", format, "--json"});
    ASSERT_EQ(made.status, 0) << made.errors;
    const Json result = Json::parse(made.output);
    std::uint64_t files = 0, layers = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_ / output))
      if (entry.path().extension() == ".safetensors" || entry.path().extension() == ".gguf") files += entry.file_size();
    EXPECT_EQ(result.at("file_bytes").as_int(), static_cast<std::int64_t>(files));
    for (const Json& layer : result.at("layers").as_array())
      layers += static_cast<std::uint64_t>(layer.at("bytes").as_int());
    // The rest of the file: the embedding table, norms, the head of the file.
    const double rest = static_cast<double>(files) - static_cast<double>(layers);
    EXPECT_GT(rest, 0);
    const std::string card = testing::read_file(folder_ / output / "README.md");
    EXPECT_THAT(card, HasSubstr(fmt::format("| Weights on disk | {:.2f} MB |", static_cast<double>(files) / 1e6)));
    for (const Json& layer : result.at("layers").as_array())
      if (std::string_view(format) == "torchao" && !layer.at("scheme").is_null()) {
        EXPECT_GT(layer.at("bytes").as_double(), 0.25 * layer.at("high_precision_bytes").as_double());
      }
  }
}

TEST_F(QuantizeVerb, LayersThatAreAlikeHaveOneLine) {
  const Outcome made = quantize("int4_weight_only_g32", "q");
  ASSERT_EQ(made.status, 0) << made.errors;
  EXPECT_THAT(made.output, HasSubstr("model.layers.*.mlp.down_proj"));
  EXPECT_THAT(made.output, Not(HasSubstr("model.layers.0.")));
}

TEST_F(QuantizeVerb, WhatNoReaderRunsIsRefusedAndTheRestWarnedAbout) {
  EXPECT_THAT(
      quantize("mxfp8_weight_only", "q", {"--format", "torchao"}).errors,
      HasSubstr("Transformers 5.24 with compressed-tensors 0.20 or TorchAO 0.18 loads the folder but cannot run "
                "it"));
  EXPECT_FALSE(fs::exists(folder_ / "q"));
  EXPECT_THAT(quantize("mxfp4_weight_only", "q", {"--dtype", "f32"}).errors,
              AllOf(HasSubstr("write bf16 (dtype)"), Not(HasSubstr("the nearest scheme"))));
  EXPECT_THAT(quantize("int4_weight_only_g32_asym", "q").errors,
              HasSubstr("Transformers 5.24 with compressed-tensors 0.20 or TorchAO 0.18 does not load it"));
  EXPECT_THAT(quantize("int4_weight_only_g32", "q").errors, Not(HasSubstr("in format compressed-tensors:")));
  EXPECT_THAT(quantize("int8dyn_int3_g32", "r", {"--reader", "vllm"}).errors,
              HasSubstr("the nearest scheme that it runs is int8dyn_int4_g32"));
  EXPECT_EQ(quantize("int8dyn_int3_g32", "r", {"--reader", "transformers"}).status, 0);
  EXPECT_THAT(quantize("int8_weight_only", "r", {"--reader", "nobody"}).errors, HasSubstr("--reader 'nobody'"));
}

TEST_F(QuantizeVerb, ExpertsThatTheirReaderCannotFuseAreWarnedAbout) {
  model_ = testing::golden_dir() / "models/qwen3_moe";
  EXPECT_THAT(quantize("nvfp4_weight_only", "q", {"--dtype", "bf16"}).errors,
              HasSubstr("computes wrong values from it: Transformers fuses NVFP4 experts"));
  EXPECT_THAT(quantize("int8dyn_int8", "q").errors, HasSubstr("cannot fuse experts of unpacked integers"));
  EXPECT_THAT(quantize("nvfp4_weight_only", "q", {"--dtype", "bf16", "--exclude", "lm_head,*.experts.*"}).errors,
              Not(HasSubstr("computes wrong values")))
      << "no experts are quantized";
}

TEST_F(QuantizeVerb, ReadersOfExpertsAreToldApartByTheFamily) {
  model_ = testing::source_dir() / "tests/reference/models/gpt_oss";
  EXPECT_THAT(quantize("int8_weight_only", "q", {"--reader", "transformers"}).errors,
              AllOf(HasSubstr("computes wrong values from it: Transformers does not find gpt-oss's experts"),
                    HasSubstr("use format mxfp4")));
  EXPECT_FALSE(fs::exists(folder_ / "q"));
  const Outcome warned = quantize("int8_weight_only", "q");
  EXPECT_EQ(warned.status, 0);
  EXPECT_THAT(warned.errors, HasSubstr("Transformers does not find gpt-oss's experts"));
  EXPECT_EQ(quantize("int8_weight_only", "r", {"--reader", "transformers", "--exclude", "lm_head,*.experts.*"}).status,
            0);
  model_ = testing::source_dir() / "tests/reference/models/llama4";
  for (const char* scheme : {"nvfp4_weight_only", "int8dyn_int8", "mxfp8_weight_only"}) {
    const Outcome written = quantize(scheme, scheme, {"--reader", "transformers", "--dtype", "bf16"});
    EXPECT_EQ(written.status, 0) << written.errors;
  }
}

TEST_F(QuantizeVerb, LayersThatTheSchemeDoesNotSuitAreSaidInOneLine) {
  model_ = testing::source_dir() / "tests/reference/models/mistral";  // 48 inputs of down_proj
  const Outcome made = quantize("int4_weight_only_g32", "q", {"--json"});
  ASSERT_EQ(made.status, 0) << made.errors;
  const std::size_t line = made.errors.find("scheme int4_weight_only_g32 suits ");
  ASSERT_NE(line, std::string::npos) << made.errors;
  EXPECT_EQ(made.errors.find("scheme int4_weight_only_g32 suits ", line + 1), std::string::npos) << "once";
  EXPECT_EQ(Json::parse(made.output).at("unfit").at("suitable_scheme"), Json("int4_weight_only"));
  EXPECT_EQ(Json::parse(quantize("int4_weight_only", "r", {"--json"}).output).find("unfit"), nullptr);
}

TEST_F(QuantizeVerb, ARuleForATiedHeadPointsAtTheTable) {
  model_ = testing::golden_dir() / "models/llama31_tied";
  EXPECT_THAT(quantize("int8_weight_only", "q", {"--rule", "lm_head=int8_weight_only"}).errors,
              HasSubstr("the head is the embedding table here (tie_word_embeddings), whose scheme embeddings names"));
}

TEST_F(QuantizeVerb, CalibrationDataThatNothingUsesAreWarnedAbout) {
  testing::write_file(folder_ / "data.txt", "words");
  const Outcome made = quantize("int8_weight_only", "q", {"--calibration", "data.txt"});
  EXPECT_EQ(made.status, 0) << made.errors;
  EXPECT_THAT(made.errors, HasSubstr("--calibration has no effect on --scheme int8_weight_only with --method rtn"));
  EXPECT_THAT(testing::read_file(folder_ / "q/README.md"), HasSubstr("| Calibration | none |"));
}

// auto_map names Python files that the export has not.
TEST_F(QuantizeVerb, ClassesOfRemoteCodeAreLeftOut) {
  fs::copy(model_, folder_ / "remote");
  Json config = Json::parse_file(folder_ / "remote/config.json");
  config.set("auto_map", Json(Json::Object{{"AutoConfig", "configuration_x.XConfig"}}));
  testing::write_file(folder_ / "remote/config.json", config.dump());
  testing::write_file(folder_ / "remote/tokenizer_config.json",
                      R"({"tokenizer_class": "X", "auto_map": {"AutoTokenizer": ["tokenization_x.X", null]}})");
  model_ = folder_ / "remote";
  ASSERT_EQ(run({"export", "--model", "remote", "--output", "plain"}).status, 0);
  ASSERT_EQ(quantize("int8_weight_only", "q").status, 0);
  for (const char* folder : {"plain", "q"}) {
    EXPECT_EQ(Json::parse_file(folder_ / folder / "config.json").find("auto_map"), nullptr);
    const Json tokenizer = Json::parse_file(folder_ / folder / "tokenizer_config.json");
    EXPECT_EQ(tokenizer.find("auto_map"), nullptr);
    EXPECT_EQ(tokenizer.at("tokenizer_class"), Json("X"));
  }
}

TEST_F(QuantizeVerb, EightBitsGiveNearlyTheSameLogits) {
  const std::vector<float> original = logits(model_.string());
  for (const auto& [scheme, format, most] : {std::tuple{"int8_weight_only", "compressed-tensors", 0.03},
                                             {"int8dyn_int8", "compressed-tensors", 0.05},
                                             {"float8_dynamic", "compressed-tensors", 0.15},
                                             {"int4_weight_only_g32", "compressed-tensors", 0.5}}) {
    SCOPED_TRACE(scheme);
    const Outcome made = quantize(scheme, scheme, {"--format", format});
    ASSERT_EQ(made.status, 0) << made.errors;
    const std::vector<float> quantized = logits(scheme);
    const double distance = testing::relative_l2<float, float>(quantized, original);
    EXPECT_GT(distance, 0);
    EXPECT_LT(distance, most);
  }
}

TEST_F(QuantizeVerb, EveryLayerIsReportedAndThePlainModelComesBack) {
  const Outcome made = quantize("int4_weight_only_g32", "q", {"--json"});
  ASSERT_EQ(made.status, 0) << made.errors;
  const Json result = Json::parse(made.output);
  ASSERT_FALSE(result.at("layers").as_array().empty());
  for (const Json& layer : result.at("layers").as_array())
    if (!layer.at("scheme").is_null()) {
      EXPECT_GT(layer.at("sqnr_db").as_double(), 12);
      EXPECT_LT(layer.at("bytes").as_double(), 0.32 * layer.at("high_precision_bytes").as_double());
    }
  // Back to a plain model: its values are those of the codes.
  ASSERT_EQ(run({"export", "--model", "q", "--output", "dense"}).status, 0);
  EXPECT_FALSE(Json::parse_file(folder_ / "dense/config.json").find("quantization_config"));
}

TEST_F(QuantizeVerb, TheHeadIsQuantizedWhereARuleNamesIt) {
  const auto scheme_of_head = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"--json", "--overwrite"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome made = quantize("int4_weight_only_g32", "q", arguments);
    EXPECT_EQ(made.status, 0) << made.errors;
    const Json result = Json::parse(made.output);
    for (const Json& layer : result.at("layers").as_array())
      if (layer.at("layer").as_string() == "lm_head")
        return layer.at("scheme").is_null() ? std::string("none") : layer.at("scheme").as_string();
    return std::string("no such layer");
  };
  EXPECT_EQ(scheme_of_head({}), "none");
  EXPECT_EQ(scheme_of_head({"--rule", "*=int8_weight_only"}), "none");
  EXPECT_EQ(scheme_of_head({"--rule", "lm_head=int8_weight_only"}), "int8_weight_only");
}

TEST_F(QuantizeVerb, RefusesWhatMakesNoSense) {
  EXPECT_THAT(quantize("int4", "q").errors, HasSubstr("--scheme 'int4' is unknown"));
  EXPECT_THAT(quantize("q4_k", "q").errors, AllOf(HasSubstr("format compressed-tensors cannot store scheme q4_k"),
                                                  HasSubstr("; formats that store it: gguf")));
  EXPECT_THAT(quantize("int8_weight_only", "q", {"--rule", "*.no_such=none"}).errors,
              HasSubstr("the quantization rule for '*.no_such' matches no linear layer"));
  EXPECT_THAT(run({"export", "--model", model_.string(), "--format", "compressed-tensors", "--output", "q"}).errors,
              HasSubstr("name a scheme"));
  EXPECT_FALSE(fs::exists(folder_ / "q"));
  ASSERT_EQ(quantize("int8_weight_only", "q").status, 0);
  const Outcome twice = run({"quantize", "--model", "q", "--scheme", "int4_weight_only_g32", "--output", "r"});
  EXPECT_EQ(twice.status, 2);
  EXPECT_THAT(twice.errors, AllOf(HasSubstr("quantized already"), HasSubstr("--allow-requantize")));
  EXPECT_FALSE(fs::exists(folder_ / "r"));
  const Outcome again =
      run({"quantize", "--model", "q", "--scheme", "int4_weight_only_g32", "--output", "r", "--allow-requantize"});
  EXPECT_EQ(again.status, 0) << again.errors;
}

class QuantizedRun : public testing::RunProject {};

TEST_F(QuantizedRun, ExportsEvaluatesAndContinues) {
  expect_ok({"train", "run.json"});
  expect_ok({"quantize", "--checkpoint", "run", "--scheme", "int4_weight_only_g32", "--rule",
             "*.down_proj=int8_weight_only", "--output", "int4"});
  const Json config = read_json("int4/config.json");
  EXPECT_EQ(config.at("quantization_config").at("format").as_string(), "pack-quantized");
  expect_ok({"export", "--checkpoint", "run", "--output", "dense"});
  const auto perplexity = [&](const std::string& model) {
    const Outcome done = run({"eval", "--model", model, "--data", "held_out.txt", "--device", "cpu", "--json"});
    EXPECT_EQ(done.status, 0) << done.errors;
    return done.status == 0 ? Json::parse(done.output).at("token_perplexity").as_double() : 0.0;
  };
  const double quantized = perplexity("int4"), dense = perplexity("dense");
  EXPECT_NE(quantized, dense);
  EXPECT_LT(quantized, 1.5 * dense);
  EXPECT_NE(continuation(run(generate("int4"))), "[]");
}

TEST_F(QuantizedRun, LayersTrainedForAnotherSchemeAreNamed) {
  expect_ok(
      {"train", "run.json", "--recipe.name=qat_int4_weight_only", "--recipe.filter.exclude=lm_head,*.self_attn.*"});
  const auto errors_of = [&](const std::string& verb, const std::string& scheme, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {verb, "--checkpoint", "run", "--scheme", scheme, "--output", verb + scheme});
    if (verb == "export") more.insert(more.end(), {"--format", "compressed-tensors"});
    const Outcome done = run(more);
    EXPECT_EQ(done.status, 0) << done.errors;
    return done.errors;
  };
  constexpr const char* kTrained = "these layers were trained for int4_weight_only_g32 (recipe qat_int4_weight_only)";
  for (const char* verb : {"quantize", "export"}) {
    EXPECT_THAT(errors_of(verb, "int4_weight_only_g32"), Not(HasSubstr("were trained for"))) << verb;
    const std::string other = errors_of(verb, "int8_weight_only");
    EXPECT_THAT(other, AllOf(HasSubstr(fmt::format("{} and are stored as int8_weight_only: ", kTrained)),
                             HasSubstr("model.layers.*.mlp.down_proj (2)"), Not(HasSubstr("self_attn"))))
        << verb;
  }
  EXPECT_THAT(
      errors_of("quantize", "int4_weight_only_g32", {"--overwrite", "--rule", "*.down_proj=int3_weight_only"}),
      HasSubstr(fmt::format("{} and are stored as int3_weight_only: model.layers.*.mlp.down_proj (2)", kTrained)));
  expect_ok({"train", "run.json", "--run.folder=plain"});
  EXPECT_THAT(run({"quantize", "--checkpoint", "plain", "--scheme", "int8_weight_only", "--output", "none"}).errors,
              Not(HasSubstr("were trained for")));
}

}  // namespace
}  // namespace quench
