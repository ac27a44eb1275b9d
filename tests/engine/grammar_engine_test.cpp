// Requests with grammars in the engine: what they generate is complete, and others do not notice them.

#include <gmock/gmock.h>

#include "tests/engine/grammar_testing.h"

namespace quench::testing {
namespace {

using ::testing::HasSubstr;

class GrammarEngine : public ::testing::Test {
 protected:
  void SetUp() override {
    if (without_library()) GTEST_SKIP() << "built without XGrammar";
    compiler_ = std::make_unique<GrammarCompiler>(vocabulary_);
  }
  [[nodiscard]] std::shared_ptr<const Grammar> schema(std::string text) const {
    return compiler_->compile({.kind = GrammarKind::json_schema, .text = std::move(text)});
  }
  // Requests of three schemas and none, in turns.
  [[nodiscard]] std::vector<EngineRequest> mixed_requests() const {
    const std::vector<std::shared_ptr<const Grammar>> grammars{
        nullptr,
        schema(
            R"({"type": "object", "properties": {"lane": {"type": "string", "maxLength": 5}, "rate": {"enum": [1, 10]}},
                   "required": ["lane", "rate"]})"),
        schema(R"({"type": "array", "items": {"enum": ["a", true, null]}, "minItems": 1, "maxItems": 3})"),
        schema(R"({"type": "integer", "minimum": 10, "maximum": 99})")};
    std::vector<EngineRequest> requests;
    for (int i = 0; i < 12; ++i)
      requests.push_back({.prompt = text(5 + 7 * i, i % 5),
                          .max_new_tokens = 180,
                          .sampling = {.temperature = i % 3 == 0 ? 0.0 : 1.0,
                                       .repetition_penalty = i % 4 == 1 ? 1.3 : 1.0,
                                       .seed = static_cast<std::uint64_t>(i)},
                          .stop_tokens = {0},
                          .grammar = grammars[static_cast<std::size_t>(i % 4)]});
    return requests;
  }
  void expect_complete(const std::vector<EngineRequest>& requests, const std::vector<EngineResult>& results) const {
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (requests[i].grammar == nullptr) continue;
      EXPECT_EQ(results[i].reason, EndReason::stop_token) << i << results[i].error;
      const std::string answer = text_of(vocabulary_, results[i].tokens);
      EXPECT_NO_THROW({
        const Json json = Json::parse(answer);
        if (i % 4 == 1) {
          EXPECT_TRUE(json.at("lane").is_string() && json.at("rate").is_integer()) << answer;
        }
        if (i % 4 == 2) {
          EXPECT_TRUE(json.is_array() && !json.as_array().empty() && json.as_array().size() <= 3) << answer;
        }
        if (i % 4 == 3) {
          EXPECT_TRUE(json.as_int() >= 10 && json.as_int() <= 99) << answer;
        }
      }) << answer;
    }
  }

  GrammarVocabulary vocabulary_ = tiny_vocabulary();
  std::unique_ptr<GrammarCompiler> compiler_;
  EngineModel model_;
};

TEST_F(GrammarEngine, AnswersKeepToTheirSchemasAndOthersDoNotNotice) {
  const std::vector<EngineRequest> requests = mixed_requests();
  Engine engine(model_.lm, {.max_sequences = 5, .cache_tokens = 1600, .prefill_tokens = 40});
  const std::vector<EngineResult> results = run_all(engine, requests);
  expect_complete(requests, results);
  for (std::size_t i = 0; i < requests.size(); i += 4)
    EXPECT_EQ(results[i].tokens, expected_answer(model_.lm, requests[i]).tokens) << i;
}

TEST_F(GrammarEngine, APreemptedRequestContinuesWhereItWas) {
  const auto letters = compiler_->compile({GrammarKind::regex, "([a-e][0-9]){40}"});
  std::vector<EngineRequest> requests;
  for (std::int64_t i = 0; i < 6; ++i)
    requests.push_back({.prompt = text(20 + i, i),
                        .max_new_tokens = 90,
                        .sampling = {.temperature = 0.5, .repetition_penalty = 1.1, .seed = 9},
                        .stop_tokens = {0},
                        .grammar = i % 3 == 2 ? nullptr : letters});
  Engine wide(model_.lm, {.max_sequences = 6, .cache_tokens = 4000});
  const std::vector<EngineResult> expected = run_all(wide, requests);
  EXPECT_EQ(wide.stats().preempted, 0);
  Engine narrow(model_.lm, {.max_sequences = 6, .cache_tokens = 8 * nn::kPageTokens});
  const std::vector<EngineResult> results = run_all(narrow, requests);
  EXPECT_GT(narrow.stats().preempted, 0);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(results[i].tokens, expected[i].tokens) << i;
    if (requests[i].grammar == nullptr) continue;
    EXPECT_EQ(results[i].reason, EndReason::stop_token) << i << results[i].error;
    EXPECT_EQ(text_of(vocabulary_, results[i].tokens).size(), 80u);
  }
}

TEST_F(GrammarEngine, LogprobsAreTheModels) {
  const EngineRequest free{.prompt = text(9), .max_new_tokens = 1, .top_logprobs = 20};
  EngineRequest kept = free;
  kept.grammar = schema(R"({"type": "null"})");
  Engine engine(model_.lm, {.max_sequences = 2, .cache_tokens = 200});
  std::vector<SampledToken> tokens(2);
  std::vector<EngineRequest> requests{free, kept};
  for (std::size_t i = 0; i < 2; ++i)
    requests[i].on_token = [&tokens, i](const SampledToken& token) {
      tokens[i] = token;
      return true;
    };
  (void)run_all(engine, requests);
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(tokens[0].top[i].token, tokens[1].top[i].token);
    EXPECT_NEAR(tokens[0].top[i].logprob, tokens[1].top[i].logprob, 1e-5);
  }
  EXPECT_EQ(vocabulary_.texts[static_cast<std::size_t>(tokens[1].token)].front(), 'n');
  EXPECT_LE(tokens[1].logprob, tokens[0].logprob);
}

TEST_F(GrammarEngine, WithoutStopTokensACompleteTextEndsARequest) {
  Engine engine(model_.lm, {.max_sequences = 2, .cache_tokens = 400});
  const std::vector<EngineResult> results =
      run_all(engine, {{.prompt = text(9), .grammar = schema(R"({"type": "boolean"})")}});
  EXPECT_EQ(results[0].reason, EndReason::stop_token);
  EXPECT_THAT(text_of(vocabulary_, results[0].tokens), ::testing::AnyOf("true", "false"));
}

TEST_F(GrammarEngine, OneThatTheVocabularyCannotWriteFailsAlone) {
  Engine engine(model_.lm, {.max_sequences = 2, .cache_tokens = 400});
  EXPECT_THROW((void)engine.submit({.prompt = text(9), .grammar = compiler_->compile({GrammarKind::regex, "X+"})}),
               Error);
  const std::vector<EngineResult> results = run_all(
      engine, {{.prompt = text(9), .stop_tokens = {0}, .grammar = compiler_->compile({GrammarKind::regex, "aX"})},
               {.prompt = text(9), .max_new_tokens = 5}});
  EXPECT_EQ(results[0].reason, EndReason::failed);
  EXPECT_THAT(results[0].error, HasSubstr("no token of the vocabulary"));
  EXPECT_EQ(results[1].reason, EndReason::length);
}

TEST_F(GrammarEngine, AGrammarOfAnotherVocabularyIsRefused) {
  GrammarVocabulary other = vocabulary_;
  other.texts.emplace_back("more");
  Engine engine(model_.lm, {.max_sequences = 2, .cache_tokens = 400});
  EXPECT_THROW((void)engine.submit({.prompt = text(9), .grammar = GrammarCompiler(other).compile({GrammarKind::json})}),
               Error);
}

// Chunks of one token take the place of decode passes.
TEST_F(GrammarEngine, ModelsWithoutDecodePassesKeepToSchemasToo) {
  const EngineModel dynamic(
      {}, R"({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}, "max_position_embeddings": 40})");
  Engine engine(dynamic.lm, {.max_sequences = 2, .cache_tokens = 200});
  const std::vector<EngineResult> results = run_all(engine, {{.prompt = text(9),
                                                              .max_new_tokens = 20,
                                                              .stop_tokens = {0},
                                                              .grammar = schema(R"({"enum": ["abc", false]})")}});
  EXPECT_EQ(results[0].reason, EndReason::stop_token) << results[0].error;
  EXPECT_THAT(text_of(vocabulary_, results[0].tokens), ::testing::AnyOf("\"abc\"", "false"));
}

}  // namespace
}  // namespace quench::testing
