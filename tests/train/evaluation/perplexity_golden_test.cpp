// Perplexity against figures of lm-evaluation-harness and Transformers (rolling_likelihood/make.py).

#include <gmock/gmock.h>

#include <map>

#include "core/json/json.h"
#include "tests/testing.h"
#include "train/evaluation/evaluation_data.h"
#include "train/model_folder/model_folder.h"

namespace quench {
namespace {

using testing::TempDir;
using testing::write_file;

std::filesystem::path figures_folder() {
  return testing::source_dir() / "tests/train/rolling_likelihood";
}

class PerplexityGolden : public ::testing::Test {
 protected:
  PerplexityGolden() {
    load_weights(model_, figures_folder() / "bos");
    for (const char* name : {"bos", "eos"}) tokenizers_[name] = load_tokenizer(figures_folder() / name);
  }

  // What the figures call a case, scored by us.
  PerplexityReport score(const Json& expected) {
    const Tokenizer& tokenizer = *tokenizers_.at(expected.at("tokenizer").as_string());
    write_file(folder_ / "text.txt", figures_.at("texts").at(expected.at("text").as_string()).as_string());
    PerplexityOptions options{.window = expected.at("window").as_int(), .stride = expected.at("stride").as_int()};
    if (options.stride == 0) options.prefix = prefix_token(&tokenizer, model_.config());
    PerplexityMeter meter(model_, options);
    read_evaluation_data(
        {.files = {(folder_ / "text.txt").string()}, .special_tokens = expected.at("special_tokens").as_bool()},
        &tokenizer, model_.config(), [&](const ScoredDocument& document) { meter.add(document); });
    if (const Json* prefix = expected.find("prefix")) {
      EXPECT_EQ(*options.prefix, prefix->as_int());
    }
    return meter.finish();
  }

  TempDir folder_;
  Json figures_ = Json::parse_file(figures_folder() / "figures.json");
  nn::CausalLm model_{read_model_config(figures_folder() / "bos"), nn::ParameterOptions{}};
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers_;
};

void expect_close(double value, double expected, const std::string& what) {
  EXPECT_NEAR(value / expected, 1, 1e-5) << what << ": " << value << ", expected " << expected;
}

TEST_F(PerplexityGolden, RollingWindowsMatchLmEvaluationHarness) {
  int compared = 0;
  for (const Json& expected : figures_.at("cases").as_array()) {
    if (expected.at("stride").as_int() > 0) continue;
    SCOPED_TRACE(expected.dump());
    const PerplexityReport report = score(expected);
    EXPECT_EQ(report.tokens, expected.at("tokens").as_int());
    EXPECT_EQ(report.words, expected.at("words").as_int());
    EXPECT_EQ(report.bytes, expected.at("bytes").as_int());
    expect_close(report.nll, -expected.at("log_likelihood").as_double(), "nll");
    // An exponential has the relative error of its exponent times the exponent.
    EXPECT_NEAR(std::log(report.word_perplexity()), std::log(expected.at("word_perplexity").as_double()), 1e-5);
    expect_close(report.byte_perplexity(), expected.at("byte_perplexity").as_double(), "byte perplexity");
    expect_close(report.bits_per_byte(), expected.at("bits_per_byte").as_double(), "bits per byte");
    ++compared;
  }
  EXPECT_GE(compared, 45);
}

TEST_F(PerplexityGolden, StridedWindowsMatchTransformers) {
  int compared = 0;
  for (const Json& expected : figures_.at("cases").as_array()) {
    if (expected.at("stride").as_int() == 0) continue;
    SCOPED_TRACE(expected.dump());
    const PerplexityReport report = score(expected);
    EXPECT_EQ(report.tokens, expected.at("tokens").as_int());
    expect_close(report.nll, -expected.at("log_likelihood").as_double(), "nll");
    ++compared;
  }
  EXPECT_GE(compared, 32);
}

}  // namespace
}  // namespace quench
