// KV caches in fp8 and int8 from end to end: folders with scales, generation, perplexity.

#include <gmock/gmock.h>

#include <limits>

#include "core/json/json.h"
#include "core/safetensors/safetensors_folder.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_program;
using testing::TempDir;
using testing::write_file;

class KvCacheVerbs : public ::testing::Test {
 protected:
  KvCacheVerbs() {
    const Json figures = Json::parse_file(testing::source_dir() / "tests/train/rolling_likelihood/figures.json");
    write_file(folder_ / "text.txt", figures.at("texts").at("middle").as_string());
  }

  Outcome run(const std::vector<std::string>& arguments) { return run_program(folder_.path(), arguments); }
  Outcome quantize(const std::string& output, std::vector<std::string> more, bool with_data = true) {
    std::vector<std::string> arguments{"quantize", "--model", model_.string(), "--output", output};
    if (with_data)
      for (const char* part : {"--calibration", "text.txt", "--calibration-seq-len", "32"})
        arguments.emplace_back(part);
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  Json generated(const std::string& model, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"generate",  "--model",          model, "--device",     "cpu",   "--prompt",
                                       "The ferry", "--max-new-tokens", "40",  "--ignore-eos", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return Json::parse(outcome.output);
  }
  double perplexity(const std::string& model, const std::string& kv_cache) {
    const Outcome outcome = run({"eval", "--model", model, "--device", "cpu", "--dtype", "f32", "--data", "text.txt",
                                 "--kv-cache", kv_cache, "--json"});
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return Json::parse(outcome.output).at("token_perplexity").as_double();
  }
  Json scheme_in(const std::string& model) {
    return Json::parse_file(folder_ / model / "config.json").at("quantization_config").at("kv_cache_scheme");
  }
  // Writes value into every scale of keys of layer 0.
  void set_key_scale(const std::string& model, float value) {
    const fs::path file = folder_ / model / "model.safetensors";
    std::string bytes = testing::read_file(file);
    const SafetensorsReader reader(file);
    const SafetensorsEntry& entry = reader.at("model.layers.0.self_attn.k_scale");
    std::uint64_t header = 0;
    std::memcpy(&header, bytes.data(), 8);
    std::memcpy(bytes.data() + 8 + header + entry.begin, &value, sizeof value);
    write_file(file, bytes);
  }

  TempDir folder_;
  fs::path model_ = testing::source_dir() / "tests/train/rolling_likelihood/bos";
};

TEST_F(KvCacheVerbs, EveryFormatKeepsThePerplexity) {
  const double plain = perplexity(model_.string(), "model");
  EXPECT_EQ(perplexity(model_.string(), "auto"), plain) << "the folder says nothing";
  for (const char* format : {"fp8", "int8"}) {
    const double through = perplexity(model_.string(), format);
    EXPECT_NE(through, plain);
    EXPECT_NEAR(through, plain, 0.01 * plain) << format;
  }
}

TEST_F(KvCacheVerbs, ACalibratedFolderIsReadAsWritten) {
  for (const char* scales : {"tensor", "head"})
    for (const char* format : {"fp8", "int8"}) {
      const std::string name = std::string(format) + "-" + scales;
      SCOPED_TRACE(name);
      const Outcome written = quantize(name, {"--kv-cache", format, "--kv-cache-scales", scales});
      ASSERT_EQ(written.status, 0) << written.errors;
      EXPECT_THAT(written.output, HasSubstr(std::string("KV cache of readers: ") + format));
      const Json scheme = scheme_in(name);
      EXPECT_EQ(scheme.at("strategy"), Json(std::string(scales) == "head" ? "attn_head" : "tensor"));
      const Json config = Json::parse_file(folder_ / name / "config.json").at("quantization_config");
      EXPECT_EQ(config.at("format"), Json("dense")) << "weights stay";
      EXPECT_TRUE(config.at("config_groups").as_object().empty());
      EXPECT_THAT(testing::read_file(folder_ / name / "README.md"), HasSubstr("| KV cache | "));
      const Json result = generated(name);
      EXPECT_EQ(result.at("kv_cache"), Json(format));
      EXPECT_EQ(generated(name, {"--kv-cache", "model"}).at("tokens"), generated(model_.string()).at("tokens"))
          << "the weights are those of the model";
      EXPECT_EQ(result.at("kv_cache_bytes_per_token").as_int() * 4,
                generated(name, {"--kv-cache", "model", "--dtype", "f32"}).at("kv_cache_bytes_per_token").as_int());
      const double plain = perplexity(name, "model");
      EXPECT_NEAR(perplexity(name, "auto"), plain, 0.02 * plain);
      EXPECT_EQ(perplexity(name, format), perplexity(name, "auto")) << "with the folder's scales";
    }
}

TEST_F(KvCacheVerbs, GoesWithQuantizedWeights) {
  const Outcome written =
      quantize("w8", {"--scheme", "float8_dynamic", "--kv-cache", "fp8", "--perplexity", "text.txt"});
  ASSERT_EQ(written.status, 0) << written.errors;
  EXPECT_THAT(written.errors, Not(HasSubstr("has no effect")));
  const SafetensorsFolder files(folder_ / "w8");
  EXPECT_TRUE(files.find("model.layers.0.self_attn.k_scale").has_value());
  EXPECT_TRUE(files.find("model.layers.0.self_attn.q_proj.weight_scale").has_value());
  EXPECT_EQ(generated("w8").at("kv_cache"), Json("fp8"));
  ASSERT_EQ(run({"export", "--model", "w8", "--output", "plain"}).status, 0);
  EXPECT_FALSE(SafetensorsFolder(folder_ / "plain").find("model.layers.0.self_attn.k_scale").has_value());
  EXPECT_EQ(Json::parse_file(folder_ / "plain/config.json").find("quantization_config"), nullptr);
}

TEST_F(KvCacheVerbs, DynamicScalesNeedNoData) {
  ASSERT_EQ(quantize("dynamic", {"--kv-cache", "fp8", "--kv-cache-scales", "dynamic"}, false).status, 0);
  EXPECT_EQ(scheme_in("dynamic").at("dynamic"), Json(true));
  EXPECT_FALSE(SafetensorsFolder(folder_ / "dynamic").find("model.layers.0.self_attn.k_scale").has_value());
  EXPECT_EQ(generated("dynamic").at("tokens"), generated(model_.string(), {"--kv-cache", "fp8"}).at("tokens"));
}

TEST_F(KvCacheVerbs, BadInputIsNamed) {
  const auto refused = [&](const std::vector<std::string>& more, bool with_data = true) {
    const Outcome outcome = quantize("refused", more, with_data);
    EXPECT_NE(outcome.status, 0);
    EXPECT_FALSE(fs::exists(folder_ / "refused"));
    return outcome.errors;
  };
  EXPECT_THAT(refused({"--kv-cache", "fp4"}), HasSubstr("--kv-cache 'fp4' is unknown; known: fp8, int8"));
  EXPECT_THAT(refused({"--kv-cache", "fp8", "--kv-cache-scales", "row"}), HasSubstr("--kv-cache-scales 'row'"));
  EXPECT_THAT(refused({"--kv-cache", "fp8"}, false), HasSubstr("--calibration is missing: --kv-cache fp8 needs"));
  EXPECT_THAT(refused({"--scheme", "float8_dynamic", "--kv-cache-scales", "head"}),
              HasSubstr("--kv-cache-scales has no effect without --kv-cache"));
  EXPECT_THAT(refused({"--kv-cache", "fp8", "--format", "gguf"}), HasSubstr("format gguf does not store"));
  EXPECT_THAT(run({"generate", "--model", model_.string(), "--prompt", "a", "--kv-cache", "q4"}).errors,
              HasSubstr("--kv-cache 'q4' is unknown; known: auto, model, fp8, int8"));

  ASSERT_EQ(quantize("bad", {"--kv-cache", "fp8"}).status, 0);
  for (const float value : {std::numeric_limits<float>::infinity(), 0.0f, -0.5f}) {
    set_key_scale("bad", value);
    const Outcome outcome =
        run({"generate", "--model", "bad", "--device", "cpu", "--prompt", "a", "--max-new-tokens", "2"});
    EXPECT_NE(outcome.status, 0);
    EXPECT_THAT(outcome.errors, AllOf(HasSubstr("model.layers.0.self_attn.k_scale"), HasSubstr("positive finite")));
  }
  EXPECT_EQ(generated("bad", {"--kv-cache", "model"}).at("kv_cache"), Json("f32"));
}

}  // namespace
}  // namespace quench
