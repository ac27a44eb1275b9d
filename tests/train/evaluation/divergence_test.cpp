#include "train/evaluation/divergence.h"

#include <gmock/gmock.h>

#include <cmath>

#include "core/ops/loss/cross_entropy.h"
#include "tests/testing.h"

namespace quench {
namespace {

using ::testing::HasSubstr;

nn::ModelConfig config_of(std::int64_t vocabulary) {
  return nn::parse_model_config(
      Json::parse(fmt::format(
          R"({{"model_type": "llama", "vocab_size": {}, "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "initializer_range": 0.3,
        "max_position_embeddings": 64}})",
          vocabulary)),
      "config.json");
}

class DivergenceOfModels : public ::testing::Test {
 protected:
  DivergenceOfModels() {
    reference_.initialize(1);
    model_.initialize(2);
    for (std::int32_t i = 0; i < 40; ++i) ids_.push_back((i * i + 5 * i) % 61);
  }

  ScoringWindow window(std::int64_t begin, std::int64_t length, std::int64_t context) const {
    ScoringWindow w{.inputs = {ids_.begin() + begin, ids_.begin() + begin + length},
                    .targets = {ids_.begin() + begin + 1, ids_.begin() + begin + length + 1},
                    .first_target = begin + 1};
    std::fill_n(w.targets.begin(), context, kIgnoreLabel);
    return w;
  }
  // Two windows in one pass, the second with three tokens of context.
  DivergenceReport compare(const nn::CausalLm& model, DivergenceMeter meter, double* nll = nullptr) const {
    WindowScorer scorer(model);
    scorer.on_pass([&](const ScoredPass& pass) { meter.add(pass); });
    scorer.add(window(0, 20, 0), 0);
    scorer.add(window(20, 15, 3), 1);
    const double sum = scorer.finish();
    if (nll != nullptr) *nll = sum;
    return meter.finish();
  }
  static std::vector<double> log_probabilities(const float* logits, std::int64_t vocabulary) {
    double sum = 0;
    for (std::int64_t v = 0; v < vocabulary; ++v) sum += std::exp(static_cast<double>(logits[v]));
    std::vector<double> result;
    for (std::int64_t v = 0; v < vocabulary; ++v) result.push_back(static_cast<double>(logits[v]) - std::log(sum));
    return result;
  }

  nn::CausalLm reference_{config_of(61), nn::ParameterOptions{}}, model_{config_of(61), nn::ParameterOptions{}};
  std::vector<std::int32_t> ids_;
};

TEST_F(DivergenceOfModels, IsThatOfTheSoftmaxesOfScoredTokens) {
  std::vector<double> expected;
  std::int64_t same = 0;
  for (const ScoringWindow& w : {window(0, 20, 0), window(20, 15, 3)}) {
    const autograd::NoGrad no_grad;
    const auto length = std::ssize(w.inputs);
    const auto logits = [&](const nn::CausalLm& model) {
      return model.logits(model.hidden(Tensor::from_values<std::int32_t>({length}, w.inputs),
                                       model.make_context({{0, length, 0, length}}, length)));
    };
    const Tensor p_logits = logits(reference_), q_logits = logits(model_);
    for (std::int64_t row = 0; row < length; ++row) {
      if (w.targets[static_cast<std::size_t>(row)] == kIgnoreLabel) continue;
      const std::vector<double> p = log_probabilities(p_logits.data<float>() + row * 61, 61),
                                q = log_probabilities(q_logits.data<float>() + row * 61, 61);
      double divergence = 0;
      for (std::size_t v = 0; v < 61; ++v) divergence += std::exp(p[v]) * (p[v] - q[v]);
      expected.push_back(divergence);
      same += std::ranges::max_element(p) - p.begin() == std::ranges::max_element(q) - q.begin() ? 1 : 0;
    }
  }
  ASSERT_EQ(expected.size(), 32u);
  double mean = 0, squares = 0;
  for (const double value : expected) mean += value / 32;
  for (const double value : expected) squares += (value - mean) * (value - mean);
  std::ranges::sort(expected);
  // All logits in one piece, and row by row.
  for (const std::int64_t bytes : {std::int64_t{1} << 20, std::int64_t{1}}) {
    const DivergenceReport report = compare(model_, DivergenceMeter(reference_, bytes));
    EXPECT_EQ(report.tokens, 32);
    EXPECT_NEAR(report.mean, mean, 1e-5 * mean);
    EXPECT_NEAR(report.mean_error, std::sqrt(squares / 31 / 32), 1e-5 * mean);
    EXPECT_NEAR(report.median, expected[15], 1e-5 * mean);
    EXPECT_NEAR(report.percentile_99, expected[31], 1e-4 * mean);
    EXPECT_NEAR(report.largest, expected[31], 1e-4 * mean);
    EXPECT_DOUBLE_EQ(report.same_top, static_cast<double>(same) / 32);
    EXPECT_NEAR(report.same_top_error, std::sqrt(report.same_top * (1 - report.same_top) / 31), 1e-9);
  }
}

TEST_F(DivergenceOfModels, OfAModelFromItselfIsZero) {
  const DivergenceReport report = compare(reference_, DivergenceMeter(reference_));
  EXPECT_NEAR(report.largest, 0, 1e-6);
  EXPECT_EQ(report.same_top, 1);
}

TEST_F(DivergenceOfModels, LossesAreThoseWithoutAReference) {
  WindowScorer scorer(model_);
  scorer.add(window(0, 20, 0), 0);
  scorer.add(window(20, 15, 3), 1);
  double with_reference = 0;
  (void)compare(model_, DivergenceMeter(reference_), &with_reference);
  EXPECT_EQ(with_reference, scorer.finish());
}

TEST_F(DivergenceOfModels, NeedsOneVocabularyAndTokens) {
  const nn::CausalLm other(config_of(64), nn::ParameterOptions{});
  try {
    (void)compare(model_, DivergenceMeter(other));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_config);
    EXPECT_THAT(error.what(), HasSubstr("64 tokens in its vocabulary, the evaluated one 61"));
  }
  EXPECT_THROW((void)DivergenceMeter(reference_).finish(), Error);
}

}  // namespace
}  // namespace quench
