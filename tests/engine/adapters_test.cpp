// Many adapters in one batch of the engine.

#include "tests/engine/adapters_testing.h"

namespace quench {
namespace {

using testing::adapted_answers;
using testing::adapted_requests;
using testing::attach_bank;
using testing::EngineModel;
using testing::expect_answer;
using testing::expected_answer;
using testing::kBankAdapters;
using testing::run_all;
using testing::text;

TEST(EngineAdapters, AnswersAreThoseOfTheModelWithOneAdapter) {
  for (const char* more :
       {"{}", R"({"model_type": "qwen3", "head_dim": 32})",
        R"({"model_type": "gemma2", "head_dim": 16, "sliding_window": 16, "query_pre_attn_scalar": 16})"}) {
    SCOPED_TRACE(more);
    EngineModel model({}, more);
    const std::vector<EngineRequest> requests = adapted_requests(16);
    const std::vector<testing::Answer> expected = adapted_answers(model.lm, requests);
    attach_bank(model.lm);
    for (const EngineOptions& options :
         {EngineOptions{.max_sequences = 1, .cache_tokens = 1000, .adapters = kBankAdapters},
          EngineOptions{.max_sequences = 16, .cache_tokens = 4000, .adapters = kBankAdapters},
          EngineOptions{.max_sequences = 5, .cache_tokens = 2000, .prefill_tokens = 7, .adapters = kBankAdapters},
          EngineOptions{
              .max_sequences = 16, .cache_tokens = 4000, .share_prefixes = false, .adapters = kBankAdapters}}) {
      Engine engine(model.lm, options);
      const std::vector<EngineResult> results = run_all(engine, requests);
      for (std::size_t i = 0; i < results.size(); ++i) {
        SCOPED_TRACE(i);
        expect_answer(results[i], expected[i], 1e-4);
      }
    }
  }
}

TEST(EngineAdapters, OneAdapterChangesTheAnswersOfItsRequestsAlone) {
  EngineModel model;
  EngineRequest request{.prompt = text(30), .max_new_tokens = 12};
  const testing::Answer base = expected_answer(model.lm, request);
  attach_bank(model.lm);
  std::vector<EngineRequest> requests;
  for (request.adapter = -1; request.adapter < kBankAdapters; ++request.adapter) requests.push_back(request);
  Engine engine(model.lm, {.max_sequences = 4, .cache_tokens = 500, .adapters = kBankAdapters});
  const std::vector<EngineResult> results = run_all(engine, requests);
  expect_answer(results[0], base, 1e-4);
  for (std::size_t i = 1; i < results.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(results[i].logprobs, results[j].logprobs) << i << " and " << j;
}

TEST(EngineAdapters, APrefixIsSharedByRequestsOfItsAdapter) {
  EngineModel model;
  std::vector<EngineRequest> requests;
  for (std::int64_t round = 0; round < 2; ++round)
    for (std::int64_t adapter = -1; adapter < kBankAdapters; ++adapter)
      requests.push_back({.prompt = text(100), .max_new_tokens = 4, .adapter = adapter});
  const std::vector<testing::Answer> expected = adapted_answers(model.lm, requests);
  attach_bank(model.lm);
  Engine engine(model.lm, {.max_sequences = 1, .cache_tokens = 2000, .adapters = kBankAdapters});
  const std::vector<EngineResult> results = run_all(engine, requests);
  for (std::size_t i = 0; i < results.size(); ++i) {
    expect_answer(results[i], expected[i], 1e-4);
    EXPECT_EQ(results[i].reused_tokens, i < 4 ? 0 : 96) << i;
  }
}

TEST(EngineAdapters, PreemptedRequestsKeepTheirAdapter) {
  EngineModel model;
  const std::vector<EngineRequest> requests = adapted_requests(8, 90);
  const std::vector<testing::Answer> expected = adapted_answers(model.lm, requests);
  attach_bank(model.lm);
  Engine engine(model.lm, {.max_sequences = 6, .cache_tokens = 12 * nn::kPageTokens, .adapters = kBankAdapters});
  const std::vector<EngineResult> results = run_all(engine, requests);
  for (std::size_t i = 0; i < results.size(); ++i) expect_answer(results[i], expected[i], 1e-4);
  EXPECT_GT(engine.stats().preempted, 0);
}

TEST(EngineAdapters, AnAdapterThatThereIsNotIsRefused) {
  EngineModel model;
  attach_bank(model.lm);
  Engine engine(model.lm, {.max_sequences = 2, .cache_tokens = 100, .adapters = kBankAdapters});
  for (const std::int64_t adapter : {std::int64_t{-2}, kBankAdapters}) try {
      (void)engine.submit({.prompt = text(4), .max_new_tokens = 1, .adapter = adapter});
      ADD_FAILURE() << adapter;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_config);
      EXPECT_NE(std::string(error.what()).find("expected -1 (none) to 2"), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace quench
