#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "tests/testing.h"
#include "tests/train/expect_error.h"
#include "train/objectives/grpo/grpo_section.h"
#include "train/objectives/grpo/rewards/reward_set.h"

namespace quench {
namespace {

using ::testing::ElementsAre;

std::vector<double> rewards_of(const GrpoSection& section, const std::vector<std::string>& completions,
                               const Json& record = Json::Object{{"answer", "42"}}) {
  std::vector<RewardSample> samples;
  for (const std::string& completion : completions) samples.push_back({"question", completion, record});
  return RewardSet(section).score(samples).total;
}

GrpoSection with_command(const std::string& command, double timeout = 20) {
  GrpoSection section;
  section.rewards.weights = {{"command", 1.0}};
  section.reward_command = command;
  section.reward_timeout = timeout;
  return section;
}

TEST(GrpoReward, ExactMatchIgnoresSpaceAtBothEnds) {
  EXPECT_THAT(rewards_of({}, {"42", " 42\n", "4 2", "", "42."}), ElementsAre(1, 1, 0, 0, 0));
  EXPECT_THAT(rewards_of({}, {"42", "43"}, Json::Object{{"answer", 42}}), ElementsAre(1, 0));
  testing::expect_error(ErrorCode::corrupt, "grpo.answer_field", [] {
    (void)rewards_of({}, {"42"}, Json::Object{{"solution", "42"}});
  });
}

TEST(GrpoReward, TheLastNumberIsRead) {
  EXPECT_EQ(last_number("from 3 to -1,234.5e1."), -12345);
  EXPECT_EQ(last_number("half is .5"), 0.5);
  EXPECT_EQ(last_number("3/4"), 0.75);
  EXPECT_EQ(last_number("10-7"), 7);
  EXPECT_EQ(last_number("x = -7"), -7);
  EXPECT_EQ(last_number("1,2,3"), 3);
  EXPECT_EQ(last_number("$5,000"), 5000);
  EXPECT_TRUE(std::isnan(last_number("none, - . e")));
}

TEST(GrpoReward, NumericMatchComparesWithATolerance) {
  GrpoSection section;
  section.rewards.weights = {{"numeric_match", 1.0}};
  EXPECT_THAT(rewards_of(section, {"it is 42.0", "41.99", "42 or 43", "unknown"}), ElementsAre(1, 0, 0, 0));
  section.reward_tolerance = 0.1;
  EXPECT_THAT(rewards_of(section, {"41.99"}), ElementsAre(1));
  testing::expect_error(ErrorCode::corrupt, "holds no number", [&] {
    (void)rewards_of(section, {"1"}, Json::Object{{"answer", "many"}});
  });
}

TEST(GrpoReward, ARegexIsFoundAndItsGroupIsTheAnswer) {
  GrpoSection section;
  section.rewards.weights = {{"regex", 1.0}};
  section.reward_pattern = "^<b>.*</b>$";
  EXPECT_THAT(rewards_of(section, {"<b>x</b>", "<b>x"}), ElementsAre(1, 0));
  section.reward_pattern = R"(answer: (\S+))";
  EXPECT_THAT(rewards_of(section, {"so answer: 42", "answer: 41", "42"}), ElementsAre(1, 0, 0));
  EXPECT_THAT(rewards_of(section, {std::string(1 << 20, 'a') + "answer: 42"}), ElementsAre(1));
  section.reward_pattern = "(";
  testing::expect_error(ErrorCode::bad_config, "no ECMAScript regular expression",
                        [&] { (void)rewards_of(section, {"x"}); });
}

TEST(GrpoReward, ACommandReadsLinesAndPrintsNumbers) {
  EXPECT_THAT(
      rewards_of(with_command("awk '{print length($0)}'"), {"", "ab"}),
      ElementsAre(Json::parse(R"({"prompt":"question","completion":"","record":{"answer":"42"}})").dump().size(),
                  Json::parse(R"({"prompt":"question","completion":"","record":{"answer":"42"}})").dump().size() + 2));
  const std::vector<double> some = rewards_of(with_command("printf '0.5\\nnull\\nnan\\n'"), {"a", "b", "c"});
  EXPECT_EQ(some[0], 0.5);
  EXPECT_TRUE(std::isnan(some[1]) && std::isnan(some[2]));
  // More than a pipe holds, both ways.
  EXPECT_EQ(rewards_of(with_command("sed 's/.*/1/'"), std::vector<std::string>(20000, std::string(100, 'x'))),
            std::vector<double>(20000, 1.0));
}

TEST(GrpoReward, AFailingCommandIsNamed) {
  testing::expect_error(ErrorCode::failed, "\"exit 3\" failed with exit status 3",
                        [] { (void)rewards_of(with_command("exit 3"), {"a"}); });
  testing::expect_error(ErrorCode::failed, "was ended by signal 9",
                        [] { (void)rewards_of(with_command("kill -9 $$"), {"a"}); });
  testing::expect_error(ErrorCode::corrupt, "printed 1 lines for 2 completions", [] {
    (void)rewards_of(with_command("echo 1"), {"a", "b"});
  });
  testing::expect_error(ErrorCode::corrupt, "line 1 of its output is \"good\"",
                        [] { (void)rewards_of(with_command("echo good"), {"a"}); });
  for (const char* number : {"inf", "-inf", "1e400"})
    testing::expect_error(ErrorCode::corrupt, "expected a number, or null for none",
                          [&] { (void)rewards_of(with_command(fmt::format("echo {}", number)), {"a"}); });
  testing::expect_error(ErrorCode::bad_config, "needs a shell command",
                        [] { (void)rewards_of(with_command(""), {"a"}); });
}

TEST(GrpoReward, ALateCommandIsKilledWithItsChildren) {
  const auto start = std::chrono::steady_clock::now();
  testing::expect_error(ErrorCode::failed, "grpo.reward_timeout",
                        [] { (void)rewards_of(with_command("sleep 60 | cat", 0.3), {"a"}); });
  testing::expect_error(ErrorCode::failed, "grpo.reward_timeout",
                        [] { (void)rewards_of(with_command("exec >/dev/null; sleep 60", 0.3), {"a"}); });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace quench
