// Calibrated quantization from end to end, on models that have learned something where figures are compared.

#include <gmock/gmock.h>

#include "core/json/json.h"
#include "core/safetensors/safetensors.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_program;

// The project's documentation is the text: calibration and evaluation on parts that training has not seen.
class CalibrationVerbSlow : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new testing::TempDir();
    std::string text;
    std::vector<fs::path> pages;
    for (const fs::directory_entry& entry : fs::directory_iterator(testing::source_dir() / "docs"))
      if (entry.path().extension() == ".md") pages.push_back(entry.path());
    std::ranges::sort(pages);
    for (const fs::path& page : pages) text += testing::read_file(page);
    // Of a hundred lines eighty are trained on, so that all parts are about the same things.
    std::string train, calibration, held_out;
    std::size_t line = 0;
    for (std::size_t at = 0; at < text.size(); ++line) {
      const std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
      (line / 10 % 10 == 8 ? calibration : line / 10 % 10 == 9 ? held_out : train) += text.substr(at, end - at);
      at = end;
    }
    testing::write_file(*folder_ / "train.txt", train);
    testing::write_file(*folder_ / "calibration.txt", calibration);
    testing::write_file(*folder_ / "held_out.txt", held_out);
    ok({"tokenize", "train", "--input", "train.txt", "--vocab-size", "512", "--output", "tokenizer"});
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  static void ok(const std::vector<std::string>& arguments) {
    const Outcome outcome = run_program(folder_->path(), arguments);
    ASSERT_EQ(outcome.status, 0) << arguments[0] << ": " << outcome.errors << outcome.output;
  }

  // Every test is a process of its own: it trains what it needs, for as long as it needs.
  static void train_model(const std::string& model, int seed, int steps) {
    testing::write_file(*folder_ / "run.json", R"({
      "model": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 512, "hidden_size": 128, "intermediate_size": 256,
                "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
                "max_position_embeddings": 128, "rms_norm_eps": 1e-5},
      "data": {"train": ["train.txt"], "seq_len": 64, "tokenizer": "tokenizer"},
      "training": {"micro_batch_size": 16, "dtype": "f32"},
      "optimizer": {"lr": 3e-3}, "lr_schedule": {"warmup_steps": 20},
      "metrics": {"tensorboard": false}, "checkpoint": {"interval": 0},
      "run": {"folder": "run"}, "export": {"folder": "model"}})");
    ok({"train", "run.json", "--training.seed", std::to_string(seed), "--training.steps", std::to_string(steps),
        "--run.folder", "run-" + model, "--export.folder", model});
  }

  static Outcome quantize(const std::string& scheme, const std::string& method, std::vector<std::string> more = {},
                          const std::string& model = "model") {
    std::vector<std::string> arguments{"quantize", "--model",  model,
                                       "--scheme", scheme,     "--method",
                                       method,     "--output", "out-" + scheme + "-" + method,
                                       "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(folder_->path(), arguments);
  }

  static std::vector<std::string> calibrated(const std::string& method) {
    if (method == "rtn" || method == "hqq") return {};
    return {"--calibration", "calibration.txt", "--calibration-samples", "40", "--calibration-seq-len", "128"};
  }

  struct Measured {
    double before = 0, after = 0;
  };
  static Measured perplexity(const std::string& scheme, const std::string& method, std::vector<std::string> more = {},
                             const std::string& model = "model") {
    for (const std::string& one : calibrated(method)) more.push_back(one);
    more.insert(more.end(), {"--perplexity", "held_out.txt", "--overwrite"});
    const Outcome made = quantize(scheme, method, more, model);
    EXPECT_EQ(made.status, 0) << made.errors;
    if (made.status != 0) return {};
    const Json json = Json::parse(made.output);
    return {json.at("perplexity_before").as_double(), json.at("perplexity").as_double()};
  }

  static testing::TempDir* folder_;
};
testing::TempDir* CalibrationVerbSlow::folder_ = nullptr;

// GPTQ lowers the loss that few bits cost, in the mean of models and schemes: single ones of so small models gain or
// lose a per cent by chance, with the text. HQQ sees weights only. AWQ is for outliers of inputs, which so small a
// model has not: tests/export/calibration_test.cpp.
TEST_F(CalibrationVerbSlow, MethodsLowerThePerplexityOfFewBits) {
  std::vector<std::string> models;
  for (int seed = 1; seed <= 3; ++seed) {
    models.push_back("model-" + std::to_string(seed));
    train_model(models.back(), seed, 400);
  }
  double nearest_sum = 0, half_quadratic_sum = 0, gptq_sum = 0;
  int cases = 0, gptq_wins = 0;
  for (const std::string scheme :
       {"int3_weight_only_g64", "int3_weight_only", "int2_weight_only_g32_asym", "int2_weight_only_g128_asym"})
    for (const std::string& model : models) {
      const Measured nearest = perplexity(scheme, "rtn", {}, model), hqq = perplexity(scheme, "hqq", {}, model),
                     gptq = perplexity(scheme, "gptq", {}, model);
      SCOPED_TRACE(fmt::format("{} {}: {:.4f}, rtn {:.4f}, hqq {:.4f}, gptq {:.4f}", model, scheme, nearest.before,
                               nearest.after, hqq.after, gptq.after));
      EXPECT_EQ(hqq.before, nearest.before);
      EXPECT_EQ(gptq.before, nearest.before);
      ++cases;
      gptq_wins += gptq.after < nearest.after ? 1 : 0;
      gptq_sum += std::log(gptq.after / gptq.before);
      nearest_sum += std::log(nearest.after / nearest.before);
      half_quadratic_sum += std::log(hqq.after / hqq.before);
    }
  EXPECT_GT(nearest_sum, cases * std::log(1.02));
  EXPECT_LT(gptq_sum, 0.9 * nearest_sum);
  EXPECT_GT(gptq_wins, cases / 2);
  // HQQ lowers the error of weights (HalfQuadratic.LowersTheMeanError). The perplexity of so small a model may rise or
  // fall with it, as the text has it.
  RecordProperty("loss", fmt::format("rtn {:.4f}, hqq {:.4f}, gptq {:.4f}, gptq wins {} of {}", nearest_sum,
                                     half_quadratic_sum, gptq_sum, gptq_wins, cases));
  EXPECT_NE(half_quadratic_sum, nearest_sum);
  EXPECT_LT(half_quadratic_sum, 1.25 * nearest_sum);
}

// What the card says is what the folder gives.
TEST_F(CalibrationVerbSlow, ThePerplexityOfTheCardIsThatOfTheFolder) {
  train_model("model", 1, 60);
  for (const auto& [scheme, method] : {std::pair<std::string, std::string>{"int4_weight_only_g32", "gptq"},
                                       {"int8dyn_int8", "smoothquant"},
                                       {"float8_static", "rtn"},
                                       {"int8static_int8", "rtn"},
                                       {"nvfp4", "rtn"}}) {
    SCOPED_TRACE(scheme);
    std::vector<std::string> more;
    if (method == "rtn") more = calibrated("gptq");
    const Measured measured = perplexity(scheme, method, more);
    const Outcome done = run_program(folder_->path(), {"eval", "--model", "out-" + scheme + "-" + method, "--data",
                                                       "held_out.txt", "--json", "--device", "cpu"});
    ASSERT_EQ(done.status, 0) << done.errors;
    EXPECT_NEAR(Json::parse(done.output).at("token_perplexity").as_double(), measured.after, 1e-3 * measured.after);
    const std::string card = testing::read_file(*folder_ / ("out-" + scheme + "-" + method + "/README.md"));
    EXPECT_THAT(card, HasSubstr("`" + scheme + "`"));
    EXPECT_THAT(card, HasSubstr("40 sequences of 128 tokens from calibration.txt"));
    EXPECT_THAT(card, HasSubstr("- `lm_head`: excluded"));
    EXPECT_THAT(card, HasSubstr(fmt::format("{:.4f} a token on held_out.txt", measured.after)));
  }
}

// Experts have codes of their own, routers stay.
TEST(QuantizeExperts, KeepTheOutputs) {
  for (const std::string model : {"mixtral", "qwen3_moe"}) {
    SCOPED_TRACE(model);
    const testing::TempDir folder;
    const std::string source = (testing::golden_dir() / "models" / model).string();
    std::vector<std::int64_t> ids(16);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(7 * i % 60);
    write_safetensors(folder / "input.safetensors",
                      {{"input_ids", DType::i64, {1, 16}, std::as_bytes(std::span(ids))}});
    const auto logits = [&](const std::string& of) {
      const Outcome done =
          run_program(folder.path(), {"forward", "--model", of, "--input", "input.safetensors", "--output",
                                      "logits.safetensors", "--overwrite", "--device", "cpu", "--dtype", "f32"});
      EXPECT_EQ(done.status, 0) << done.errors;
      const SafetensorsReader reader(folder / "logits.safetensors");
      const SafetensorsEntry& entry = reader.at("logits");
      std::vector<float> values(static_cast<std::size_t>(entry.shape.numel()));
      reader.read(entry, std::as_writable_bytes(std::span(values)));
      return values;
    };
    const Outcome made = run_program(
        folder.path(), {"quantize", "--model", source, "--scheme", "int8_weight_only", "--output", "q", "--json"});
    ASSERT_EQ(made.status, 0) << made.errors;
    EXPECT_THAT(made.output, HasSubstr("experts.0"));
    EXPECT_THAT(testing::read_file(folder / "q/config.json"), HasSubstr("gate\""));  // the router, which is left alone
    const double distance = testing::relative_l2<float, float>(logits("q"), logits(source));
    EXPECT_GT(distance, 0);
    EXPECT_LT(distance, 0.05);
  }
}

TEST_F(CalibrationVerbSlow, RefusesWhatMakesNoSense) {
  train_model("model", 1, 21);
  const auto refusal = [](const Outcome& outcome) {
    EXPECT_EQ(outcome.status, 2) << outcome.output;
    return outcome.errors;
  };
  EXPECT_THAT(refusal(quantize("int4_weight_only_g32", "gptq")), HasSubstr("needs calibration data"));
  EXPECT_THAT(refusal(quantize("float8_static", "rtn")), HasSubstr("needs calibration data"));
  EXPECT_THAT(refusal(quantize("int4_weight_only_g32", "smoothquant", calibrated("gptq"))),
              HasSubstr("schemes that round the inputs"));
  EXPECT_THAT(refusal(quantize("int4_weight_only_g32", "rtn", calibrated("gptq"))), HasSubstr("has no effect"));
  EXPECT_THAT(refusal(quantize("int4_weight_only_g32", "awq", {"--damping", "0.1", "--calibration", "train.txt"})),
              HasSubstr("--damping has no effect on method awq; it acts on: gptq, smoothquant_gptq"));
  EXPECT_THAT(refusal(quantize("int4_weight_only_g32", "gptq",
                               {"--calibration", "calibration.txt", "--calibration-samples", "100000"})),
              HasSubstr("sequences were asked for"));
  testing::write_file(*folder_ / "empty.txt", "");
  EXPECT_THAT(refusal(quantize("int4_weight_only_g32", "gptq", {"--calibration", "empty.txt"})),
              HasSubstr("hold 0 tokens"));
  EXPECT_THAT(quantize("int4_weight_only_g32", "gptq", {"--calibration", "absent.txt"}).errors,
              HasSubstr("absent.txt"));
  EXPECT_THAT(refusal(quantize("int4_weight_only_g32", "gptq",
                               {"--calibration", "calibration.txt", "--calibration-seq-len", "999"})),
              HasSubstr("exceed the model's context"));
  EXPECT_FALSE(fs::exists(*folder_ / "out-int4_weight_only_g32-gptq-refused"));
}

}  // namespace
}  // namespace quench
