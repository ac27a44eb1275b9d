// Losses, gradients and advantages against TRL's (tests/reference/make_grpo.py).

#include <gtest/gtest.h>

#include "core/json/json.h"
#include "tests/train/model_folder/golden_model.h"
#include "train/objectives/grpo/run/policy_loss.h"

namespace quench {
namespace {

constexpr double kGrpoTolerance = 1e-9;

std::vector<double> numbers(const Json& list) {
  std::vector<double> values;
  for (const Json& value : list.as_array()) values.push_back(value.as_double());
  return values;
}

std::vector<std::vector<double>> number_rows(const Json& list) {
  std::vector<std::vector<double>> rows;
  for (const Json& row : list.as_array()) rows.push_back(numbers(row));
  return rows;
}

Json grpo_figures() {
  return Json::parse_file(testing::reference_dir() / "grpo.json");
}

PolicyLossOptions options_of(const Json& one, std::int64_t max_completion_length) {
  const std::string type = one.at("loss_type").as_string();
  return {.type = type == "grpo"   ? PolicyLossType::grpo
                  : type == "dapo" ? PolicyLossType::dapo
                                   : PolicyLossType::dr_grpo,
          .level = one.at("level") == Json("token") ? ImportanceLevel::token : ImportanceLevel::sequence,
          .beta = one.at("beta").as_double(),
          .epsilon_low = one.at("epsilon").as_double(),
          .epsilon_high = one.at("epsilon_high").as_double(),
          .max_completion_length = max_completion_length};
}

TEST(GrpoLoss, ValuesAndGradientsAreThoseOfTrl) {
  const Json figures = grpo_figures();
  const auto logps = number_rows(figures.at("logps")), old = number_rows(figures.at("old")),
             reference = number_rows(figures.at("reference"));
  const std::vector<double> advantages = numbers(figures.at("advantages"));
  double tokens = 0;
  for (const auto& row : logps) tokens += static_cast<double>(row.size());
  std::size_t clipped_cases = 0;
  for (const Json& one : figures.at("cases").as_array()) {
    SCOPED_TRACE(one.at("loss_type").as_string() + " " + one.at("level").as_string() + " " + one.at("beta").dump());
    const PolicyLossOptions options = options_of(one, figures.at("max_completion_length").as_int());
    const double units = options.type == PolicyLossType::dapo ? tokens : static_cast<double>(logps.size());
    const auto gradients = number_rows(one.at("gradient"));
    double loss = 0, divergence = 0, clipped = 0;
    for (std::size_t i = 0; i < logps.size(); ++i) {
      const PolicyTerms terms = policy_loss(
          options, {.logps = logps[i],
                    .old = old[i],
                    .reference = options.beta > 0 ? std::span<const double>(reference[i]) : std::span<const double>(),
                    .advantage = advantages[i]});
      loss += terms.loss / units;
      divergence += terms.divergence / tokens;
      clipped += (terms.clipped_low + terms.clipped_high) / tokens;
      ASSERT_EQ(terms.derivatives.size(), gradients[i].size());
      for (std::size_t t = 0; t < gradients[i].size(); ++t)
        EXPECT_NEAR(terms.derivatives[t] / units, gradients[i][t], kGrpoTolerance) << i << " " << t;
    }
    EXPECT_NEAR(loss, one.at("loss").as_double(), kGrpoTolerance);
    if (options.beta > 0) {
      EXPECT_NEAR(divergence, one.at("kl").as_double(), kGrpoTolerance);
    }
    if (options.level == ImportanceLevel::token) {
      EXPECT_NEAR(clipped, one.at("clipped").as_double(), kGrpoTolerance);
    }
    clipped_cases += clipped > 0 ? 1 : 0;
  }
  EXPECT_GT(clipped_cases, 0u);
}

TEST(GrpoLoss, AdvantagesAreThoseOfTrl) {
  const Json figures = grpo_figures();
  const auto rewards = number_rows(figures.at("rewards"));
  std::vector<double> all;
  for (const auto& row : rewards) all.insert(all.end(), row.begin(), row.end());
  for (const auto& [name, baseline] :
       {std::pair("mean", RewardBaseline::mean), std::pair("leave_one_out", RewardBaseline::leave_one_out)}) {
    const Json& scaled = figures.at("scaled").at(name);
    for (const auto& [scale_name, scale] :
         {std::pair("group", RewardScale::group), std::pair("batch", RewardScale::batch),
          std::pair("none", RewardScale::none)}) {
      const auto expected = number_rows(scaled.at(scale_name));
      const double divisor = scale == RewardScale::batch ? deviation_of(all) + kDeviationFloor : 1;
      for (std::size_t g = 0; g < rewards.size(); ++g) {
        const std::vector<double> advantages = group_advantages(rewards[g], baseline, scale);
        for (std::size_t i = 0; i < advantages.size(); ++i)
          EXPECT_NEAR(advantages[i] / divisor, expected[g][i], kGrpoTolerance) << name << " " << scale_name << " " << g;
      }
    }
  }
}

TEST(GrpoLoss, EqualRewardsGiveNoGradient) {
  const std::vector<double> advantages =
      group_advantages(std::vector<double>(5, 0.1), RewardBaseline::mean, RewardScale::group);
  EXPECT_EQ(advantages, std::vector<double>(5, 0.0));
  const std::vector<double> logps = {-1.0, -2.0}, old = {-1.5, -1.0};
  const PolicyTerms terms = policy_loss({}, {.logps = logps, .old = old, .reference = {}, .advantage = 0});
  EXPECT_EQ(terms.loss, 0);
  EXPECT_EQ(terms.derivatives, std::vector<double>(2, 0.0));
}

}  // namespace
}  // namespace quench
