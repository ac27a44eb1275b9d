// Rewards of servers, reward models, functions and schemas.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/testing.h"
#include "tests/train/expect_error.h"
#include "tests/train/objective/reward_server.h"
#include "train/model_folder/model_folder.h"
#include "train/objectives/grpo/grpo_section.h"
#include "train/objectives/grpo/rewards/json_schema.h"
#include "train/objectives/grpo/rewards/reward_set.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing::RewardServer;

const Json kNoFields = Json::object();

GrpoSection with_reward(const char* name) {
  GrpoSection section;
  section.rewards.weights = {{name, 1.0}};
  return section;
}

GrpoSection with_server(const RewardServer& server) {
  GrpoSection section = with_reward("http");
  section.reward_url = server.url();
  section.reward_timeout = 20;
  return section;
}

std::vector<double> two_scores(const GrpoSection& section) {
  const std::vector<RewardSample> samples = {{"p", "one", kNoFields}, {"p", "two", kNoFields}};
  return RewardSet(section).score(samples).total;
}

TEST(GrpoServedReward, ABatchIsPostedAndItsNumbersAreRead) {
  std::string body;
  const RewardServer server([&](int number, const std::string& text) -> RewardServer::Answer {
    body = text;
    return {.body = number == 0 ? "[0.5, null]" : R"({"rewards": [1, -2]})"};
  });
  const std::vector<double> first = two_scores(with_server(server));
  EXPECT_EQ(first[0], 0.5);
  EXPECT_TRUE(std::isnan(first[1]));
  EXPECT_THAT(two_scores(with_server(server)), ElementsAre(1, -2));
  EXPECT_EQ(Json::parse(body), Json::parse(R"({"samples": [{"prompt": "p", "completion": "one", "record": {}},
                                                           {"prompt": "p", "completion": "two", "record": {}}]})"));
}

TEST(GrpoServedReward, AServerThatIsBusyOrSilentIsAskedAgain) {
  const RewardServer server([](int number, const std::string&) -> RewardServer::Answer {
    if (number == 0) return {.status = 503, .body = "busy"};
    if (number == 1) return {.body = "", .is_silent = true};
    return {.body = "[3, 4]"};
  });
  GrpoSection section = with_server(server);
  section.reward_timeout = 1.5;
  EXPECT_THAT(two_scores(section), ElementsAre(3, 4));
  EXPECT_EQ(server.requests(), 3);
}

TEST(GrpoServedReward, FailuresOfAServerAreNamed) {
  const RewardServer refuses([](int, const std::string&) -> RewardServer::Answer { return {404, "no such page"}; });
  testing::expect_error(ErrorCode::failed, "answered with status 404: no such page",
                        [&] { (void)two_scores(with_server(refuses)); });
  EXPECT_EQ(refuses.requests(), 1);
  const RewardServer few([](int, const std::string&) -> RewardServer::Answer { return {200, "[1]"}; });
  testing::expect_error(ErrorCode::corrupt, "1 rewards for 2 completions", [&] { (void)two_scores(with_server(few)); });
  const RewardServer text([](int, const std::string&) -> RewardServer::Answer { return {200, R"(["a", 1])"}; });
  testing::expect_error(ErrorCode::corrupt, "reward 1 of the answer is string",
                        [&] { (void)two_scores(with_server(text)); });
  const RewardServer page([](int, const std::string&) -> RewardServer::Answer { return {200, "<html>"}; });
  testing::expect_error(ErrorCode::corrupt, "is no JSON", [&] { (void)two_scores(with_server(page)); });
  const RewardServer silent([](int, const std::string&) -> RewardServer::Answer { return {200, "", true}; });
  GrpoSection section = with_server(silent);
  section.reward_timeout = 0.5;
  section.reward_retries = 1;
  testing::expect_error(ErrorCode::failed, "attempts: 2", [&] { (void)two_scores(section); });
  GrpoSection unreachable = with_reward("http");
  unreachable.reward_url = "http://127.0.0.1:9/";
  unreachable.reward_retries = 0;
  testing::expect_error(ErrorCode::failed, "no connection could be made", [&] { (void)two_scores(unreachable); });
}

TEST(GrpoServedReward, AFunctionOfTheProgramIsCalled) {
  testing::expect_error(ErrorCode::bad_config, "Python module", [] { (void)two_scores(with_reward("function")); });
  set_reward_function([](std::span<const RewardSample> samples) {
    std::vector<double> lengths;
    for (const RewardSample& sample : samples) lengths.push_back(static_cast<double>(sample.completion.size()));
    return lengths;
  });
  EXPECT_THAT(two_scores(with_reward("function")), ElementsAre(3, 3));
  set_reward_function({});
}

TEST(GrpoServedReward, JsonOfASchemaIsRewarded) {
  const testing::TempDir folder;
  testing::write_file(folder / "schema.json", R"({
    "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "required": ["name", "age"],
    "additionalProperties": false,
    "properties": {"name": {"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^[a-z]"},
                   "age": {"type": "integer", "minimum": 0, "maximum": 9},
                   "kind": {"enum": ["a", 1]}, "version": {"const": 2},
                   "tags": {"type": "array", "items": {"type": ["string", "null"]}, "minItems": 1, "maxItems": 2}}})");
  GrpoSection section = with_reward("json_schema");
  section.reward_schema = (folder / "schema.json").string();
  const auto reward = [&](const std::string& text) {
    const std::vector<RewardSample> samples = {{"p", text, kNoFields}};
    return RewardSet(section).score(samples).total.front();
  };
  for (const char* good : {R"({"name": "ab", "age": 3})", R"( {"age": 3.0, "name": "aä€", "kind": 1} )",
                           R"({"name": "abc", "age": 0, "version": 2, "tags": ["x", null]})",
                           "```json\n{\"name\": \"ab\", \"age\": 9}\n```", "```{\"name\": \"ab\", \"age\": 9}```",
                           " ``` {\"name\": \"ab\", \"age\": 9} ``` ", "```json {\"name\": \"ab\", \"age\": 9}```"})
    EXPECT_EQ(reward(good), 1) << good;
  for (const char* bad :
       {"", "{", R"({"name": "ab"})", R"({"name": "a", "age": 3})", R"({"name": "abcd", "age": 3})",
        R"({"name": "Ab", "age": 3})", R"({"name": "ab", "age": 3.5})", R"({"name": "ab", "age": -1})",
        R"({"name": "ab", "age": 10})", R"({"name": "ab", "age": 3, "more": 1})",
        R"({"name": "ab", "age": 3, "kind": 2})", R"({"name": "ab", "age": 3, "version": 3})",
        R"({"name": "ab", "age": 3, "tags": []})", R"({"name": "ab", "age": 3, "tags": ["a", "b", "c"]})",
        R"({"name": "ab", "age": 3, "tags": [1]})", R"([{"name": "ab", "age": 3}])",
        R"({"name": "ab", "age": 3} and more)"})
    EXPECT_EQ(reward(bad), 0) << bad;
}

TEST(GrpoServedReward, WhatASchemaCannotSayIsRefusedByName) {
  for (const auto& [schema, reason] : std::vector<std::pair<const char*, const char*>>{
           {R"({"anyOf": []})", R"(#: "anyOf" is no keyword of the subset)"},
           {R"({"items": {"format": "date"}})", R"(#/items: "format" is no keyword)"},
           {R"({"type": "text"})", R"("type" names text, expected null, boolean)"},
           {R"({"minimum": "1"})", R"("minimum" is "1", expected a number)"},
           {R"({"maxLength": -1})", R"("maxLength" is -1, expected a count)"},
           {R"({"pattern": "("})", "no ECMAScript regular expression"},
           {R"({"required": [1]})", "expected a list of texts"},
           {"[]", "expected an object: a schema"}})
    testing::expect_error(ErrorCode::bad_config, reason, [&] { const JsonSchema read(Json::parse(schema)); });
}

TEST(GrpoServedReward, ARewardModelScoresTheLastTokenOfEachText) {
  const testing::TempDir folder;
  const fs::path stored = testing::source_dir() / "tests/train/rolling_likelihood/bos", target = folder / "reward";
  nn::ModelConfig config = read_model_config(stored);
  nn::CausalLm model(config, {.dtype = DType::f32});
  nn::Parameter& head = model.add_head("score", 1, {.dtype = DType::f32});
  model.initialize(5);
  (void)save_model_folder(model, {.folder = target}, {.dtype = DType::f32});
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    fs::copy(stored / file, target / file, fs::copy_options::overwrite_existing);
  GrpoSection section = with_reward("model");
  section.reward_model = target.string();
  RewardSet rewards(section);
  rewards.open(Device{}, DType::f32);
  const std::vector<RewardSample> samples = {
      {"the first", " text", kNoFields}, {"another prompt", " and more of it", kNoFields}, {"a", "b", kNoFields}};
  const std::vector<double> scores = rewards.score(samples).total;
  ASSERT_EQ(scores.size(), 3u);
  const auto tokenizer = load_tokenizer(target);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::vector<std::int32_t> ids = tokenizer->encode(
        std::string(samples[i].prompt) + std::string(samples[i].completion), {.add_special_tokens = false});
    const autograd::NoGrad no_grad;
    const std::int64_t length = std::ssize(ids);
    const Tensor hidden = model
                              .hidden(Tensor::from_values<std::int32_t>({length}, ids),
                                      model.make_context({{0, length, 0, length}}, length))
                              .value();
    double wanted = 0;
    for (std::int64_t h = 0; h < hidden.size(1); ++h)
      wanted += static_cast<double>(hidden.data<float>()[(length - 1) * hidden.size(1) + h]) *
                static_cast<double>(head.variable.value().data<float>()[h]);
    EXPECT_NEAR(scores[i], wanted, 1e-5 * std::max(1.0, std::abs(wanted)));
  }
  EXPECT_NE(scores[0], scores[1]);
}

}  // namespace
}  // namespace quench
