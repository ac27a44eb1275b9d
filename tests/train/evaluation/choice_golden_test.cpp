// Multiple-choice tasks against figures of lm-evaluation-harness (choice_tasks/make.py).

#include <gmock/gmock.h>

#include <map>

#include "core/json/json.h"
#include "tests/testing.h"
#include "train/evaluation/choice_scoring.h"
#include "train/model_folder/model_folder.h"

namespace quench {
namespace {

class ChoiceGolden : public ::testing::Test {
 protected:
  ChoiceGolden() {
    load_weights(model_, model_folder_ / "bos");
    for (const char* name : {"bos", "eos"}) tokenizers_[name] = load_tokenizer(model_folder_ / name);
  }

  std::filesystem::path figures_folder_ = testing::source_dir() / "tests/train/choice_tasks";
  std::filesystem::path model_folder_ = testing::source_dir() / "tests/train/rolling_likelihood";
  Json figures_ = Json::parse_file(figures_folder_ / "figures.json");
  nn::CausalLm model_{read_model_config(model_folder_ / "bos"), nn::ParameterOptions{}};
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers_;
};

TEST_F(ChoiceGolden, MatchesLmEvaluationHarness) {
  std::map<std::string, int> compared;
  for (const Json& expected : figures_.at("cases").as_array()) {
    const std::string& name = expected.at("task").as_string();
    SCOPED_TRACE(
        fmt::format("{}, {}, {}", name, expected.at("tokenizer").as_string(), expected.at("special_tokens").dump()));
    const auto items = read_choice_items(choice_tasks().require(name, "task"), figures_folder_ / (name + ".jsonl"));
    const ScoredText encoder(*tokenizers_.at(expected.at("tokenizer").as_string()), model_.config(),
                             expected.at("special_tokens").as_bool());
    const auto likelihoods = choice_log_likelihoods(model_, encoder, expected.at("window").as_int(), items);
    // Figures are those of the recorded likelihoods: two endings may be closer than the order of sums decides.
    auto recorded = likelihoods;
    const Json::Array& wanted = expected.at("log_likelihoods").as_array();
    ASSERT_EQ(likelihoods.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_EQ(likelihoods[i].size(), wanted[i].as_array().size()) << "item " << i;
      for (std::size_t c = 0; c < likelihoods[i].size(); ++c) {
        recorded[i][c] = wanted[i].as_array()[c].as_double();
        EXPECT_NEAR(likelihoods[i][c] / recorded[i][c], 1, 1e-5) << "item " << i << ", " << c;
      }
    }
    const ChoiceReport report = choice_report(items, recorded);
    EXPECT_EQ(report.items, 24);
    EXPECT_NEAR(report.accuracy, expected.at("acc").as_double(), 1e-12);
    EXPECT_NEAR(report.normalized, expected.at("acc_norm").as_double(), 1e-12);
    EXPECT_NEAR(report.accuracy_error, expected.at("acc_stderr").as_double(), 1e-12);
    EXPECT_NEAR(report.normalized_error, expected.at("acc_norm_stderr").as_double(), 1e-12);
    ++compared[name];
  }
  EXPECT_EQ(compared.size(), choice_tasks().size()) << "every task of the table has figures";
}

}  // namespace
}  // namespace quench
