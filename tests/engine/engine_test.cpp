#include "engine/engine.h"

#include <random>
#include <thread>

#include "tests/engine/engine_testing.h"

namespace quench {
namespace {

using testing::EngineModel;
using testing::expect_answer;
using testing::expected_answer;
using testing::run_all;
using testing::text;

std::vector<EngineRequest> mixed_requests() {
  std::vector<EngineRequest> all;
  for (std::int64_t i = 0; i < 9; ++i) {
    EngineRequest& request = all.emplace_back(
        EngineRequest{.prompt = text(1 + i * i * 2, i), .max_new_tokens = 3 + i * 7 % 40, .stop_tokens = {11}});
    if (i % 3 == 1)
      request.sampling = {.temperature = 0.8, .top_k = 20, .top_p = 0.95, .seed = static_cast<std::uint64_t>(i)};
    if (i % 3 == 2) request.sampling = {.temperature = 1, .repetition_penalty = 1.3, .seed = 4};
  }
  return all;
}

void expect_answers(const nn::CausalLm& model, const EngineOptions& options) {
  Engine engine(model, options);
  const std::vector<EngineRequest> requests = mixed_requests();
  const std::vector<EngineResult> results = run_all(engine, requests);
  for (std::size_t i = 0; i < results.size(); ++i) {
    SCOPED_TRACE(i);
    expect_answer(results[i], expected_answer(model, requests[i]));
    const bool stopped = results[i].tokens.back() == 11;
    EXPECT_EQ(results[i].reason, stopped ? EndReason::stop_token : EndReason::length);
  }
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.running + stats.waiting, 0);
  EXPECT_EQ(stats.free_tokens, stats.cache_tokens);
}

TEST(Engine, AnswersAreThoseOfPassesOverTheWholeText) {
  const EngineModel model;
  for (const EngineOptions& options :
       {EngineOptions{.max_sequences = 1}, EngineOptions{.max_sequences = 4, .cache_tokens = 1000},
        EngineOptions{.max_sequences = 16, .cache_tokens = 4000, .prefill_tokens = 7},
        EngineOptions{.max_sequences = 16, .cache_tokens = 4000, .share_prefixes = false}})
    expect_answers(model.lm, options);
}

TEST(Engine, AttentionOfEveryKindReadsPages) {
  for (const char* more :
       {R"({"model_type": "mistral", "sliding_window": 20})",
        R"({"model_type": "gemma2", "head_dim": 16, "sliding_window": 16, "query_pre_attn_scalar": 16})",
        R"({"model_type": "qwen3", "head_dim": 32})",
        R"({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64}})"}) {
    SCOPED_TRACE(more);
    const EngineModel model({}, more);
    expect_answers(model.lm, {.max_sequences = 5, .cache_tokens = 2000, .prefill_tokens = 33});
  }
}

// Less cache than the requests grow to: the newest ones are computed again.
TEST(Engine, AFullCacheDelaysRequestsAndChangesNothing) {
  const EngineModel model;
  std::vector<EngineRequest> requests;
  for (std::int64_t i = 0; i < 6; ++i)
    requests.push_back({.prompt = text(20 + i, i),
                        .max_new_tokens = 90,
                        .sampling = {.temperature = 0.7, .repetition_penalty = 1.1, .seed = 9}});
  Engine engine(model.lm, {.max_sequences = 6, .cache_tokens = 8 * nn::kPageTokens});
  const std::vector<EngineResult> results = run_all(engine, requests);
  for (std::size_t i = 0; i < results.size(); ++i) expect_answer(results[i], expected_answer(model.lm, requests[i]));
  EXPECT_GT(engine.stats().preempted, 0);
  EXPECT_EQ(engine.stats().free_tokens, engine.stats().cache_tokens);
}

TEST(Engine, EqualBeginningsAreComputedOnce) {
  const EngineModel model;
  const std::vector<std::int32_t> beginning = text(100);
  std::vector<EngineRequest> requests;
  for (std::int32_t i = 0; i < 5; ++i) {
    EngineRequest& request = requests.emplace_back(EngineRequest{.prompt = beginning, .max_new_tokens = 40});
    request.prompt.push_back(i);
  }
  Engine engine(model.lm, {.max_sequences = 2, .cache_tokens = 1000});
  const std::vector<EngineResult> results = run_all(engine, requests);
  for (std::size_t i = 0; i < results.size(); ++i) {
    expect_answer(results[i], expected_answer(model.lm, requests[i]));
    // Two requests begin together, before a page is known.
    EXPECT_EQ(results[i].reused_tokens, i < 2 ? 0 : 96) << i;
  }
  // An answer is the beginning of the next prompt.
  EngineRequest next{.prompt = requests[0].prompt, .max_new_tokens = 5};
  next.prompt.insert(next.prompt.end(), results[0].tokens.begin(), results[0].tokens.end());
  const EngineResult result = run_all(engine, {next}).front();
  expect_answer(result, expected_answer(model.lm, next));
  EXPECT_EQ(result.reused_tokens, 128);
}

TEST(Engine, TopLogprobsAreTheMostLikelyTokens) {
  const EngineModel model;
  Engine engine(model.lm, {.max_sequences = 2, .cache_tokens = 500});
  std::vector<SampledToken> tokens;
  EngineRequest request{
      .prompt = text(5), .max_new_tokens = 6, .sampling = {.temperature = 1, .seed = 2}, .top_logprobs = 4};
  request.on_token = [&](const SampledToken& token) {
    tokens.push_back(token);
    return true;
  };
  const EngineResult result = run_all(engine, {request, {.prompt = text(9), .max_new_tokens = 4}}).front();
  ASSERT_EQ(tokens.size(), 6u);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(tokens[i].logprob, result.logprobs[i]);
    ASSERT_EQ(tokens[i].top.size(), 4u);
    for (std::size_t j = 1; j < 4; ++j) EXPECT_GE(tokens[i].top[j - 1].logprob, tokens[i].top[j].logprob);
    EXPECT_GE(tokens[i].top[0].logprob, tokens[i].logprob);
    for (const TokenLogprob& top : tokens[i].top) {
      if (top.token == tokens[i].token) {
        EXPECT_EQ(top.logprob, tokens[i].logprob);
      }
    }
  }
}

TEST(Engine, RequestsEndWhereTheyAreToldTo) {
  const EngineModel model;
  Engine engine(model.lm, {.max_sequences = 2, .cache_tokens = 500});
  int seen = 0;
  EngineRequest request{.prompt = text(5), .max_new_tokens = 50};
  request.on_token = [&](const SampledToken&) { return ++seen < 3; };
  const std::vector<EngineResult> results = run_all(engine, {request, {.prompt = text(4), .max_new_tokens = 0}});
  EXPECT_EQ(results[0].reason, EndReason::stopped);
  EXPECT_EQ(results[0].tokens.size(), 3u);
  EXPECT_EQ(results[1].reason, EndReason::length);
  EXPECT_TRUE(results[1].tokens.empty());

  std::uint64_t id = 0;
  EndReason reason{};
  EngineRequest cancelled{.prompt = text(5), .max_new_tokens = 300};
  cancelled.on_token = [&](const SampledToken&) {
    engine.cancel(id);
    return true;
  };
  cancelled.on_end = [&](const EngineResult& result) { reason = result.reason; };
  id = engine.submit(std::move(cancelled));
  while (engine.step()) {
  }
  EXPECT_EQ(reason, EndReason::cancelled);
  EXPECT_EQ(engine.stats().free_tokens, engine.stats().cache_tokens);
}

TEST(Engine, RequestsThatCanNeverRunAreRefused) {
  const EngineModel model;
  Engine engine(model.lm, {.max_sequences = 2, .cache_tokens = 100});
  const auto refused = [&](EngineRequest request, const char* why) {
    try {
      (void)engine.submit(std::move(request));
      ADD_FAILURE() << why;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_config);
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
  };
  refused({}, "the prompt is empty");
  refused({.prompt = {3, 60}}, "token 60 of the prompt");
  refused({.prompt = {-1}}, "token -1 of the prompt");
  refused({.prompt = text(10), .max_new_tokens = 391}, "the model's context of 400");
  refused({.prompt = text(10), .max_new_tokens = 200}, "the KV cache of 128 tokens");
  refused({.prompt = text(10), .sampling = {.temperature = -1}}, "temperature");
  refused({.prompt = text(10), .top_logprobs = 21}, "top_logprobs is 21");
  EXPECT_THROW(Engine(model.lm, {.max_sequences = 0}), Error);
  EXPECT_THROW(Engine(model.lm, {.prefill_tokens = 0}), Error);
}

TEST(Engine, ANonFiniteLogitFailsItsRequestAlone) {
  EngineModel model;
  // The embedding of token 59 alone is infinite; nothing generates it.
  const Tensor table = model.lm.parameters().front()->variable.value();
  table.data<float>()[59 * 32] = INFINITY;
  Engine engine(model.lm, {.max_sequences = 3, .cache_tokens = 500});
  const std::vector<EngineResult> results =
      run_all(engine, {{.prompt = {1, 2}, .max_new_tokens = 4}, {.prompt = {1, 59}, .max_new_tokens = 4}});
  EXPECT_EQ(results[0].reason, EndReason::length);
  EXPECT_EQ(results[1].reason, EndReason::failed);
  EXPECT_EQ(results[1].code, ErrorCode::nonfinite);
  EXPECT_NE(results[1].error.find("after 2 tokens are not finite"), std::string::npos) << results[1].error;
}

TEST(Engine, ThreadsSubmitAndCancelWhileItRuns) {
  const EngineModel model;
  Engine engine(model.lm, {.max_sequences = 4, .cache_tokens = 600});
  std::atomic<int> ended = 0;
  constexpr int kThreads = 4, kRequests = 12;
  {
    std::jthread loop([&](const std::stop_token& stop) { engine.run(stop); });
    std::vector<std::jthread> clients;
    for (int t = 0; t < kThreads; ++t)
      clients.emplace_back([&, t] {
        std::mt19937 random(static_cast<unsigned>(t));
        for (int i = 0; i < kRequests; ++i) {
          EngineRequest request{.prompt = text(1 + static_cast<std::int64_t>(random() % 40), t),
                                .max_new_tokens = static_cast<std::int64_t>(random() % 30)};
          request.on_end = [&](const EngineResult&) { ++ended; };
          const std::uint64_t id = engine.submit(std::move(request));
          if (random() % 3 == 0) engine.cancel(id);
        }
      });
    clients.clear();
    while (ended < kThreads * kRequests) std::this_thread::yield();
  }
  EXPECT_EQ(engine.stats().requests, kThreads * kRequests);
}

}  // namespace
}  // namespace quench
