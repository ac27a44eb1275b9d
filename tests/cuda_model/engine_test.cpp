// The engine on a GPU: decode passes are device graphs, launched before the host has read the tokens of the last one.

#include "tests/cuda/gpu.h"
#include "tests/engine/engine_testing.h"
#include "tests/engine/grammar_testing.h"

namespace quench {
namespace {

using testing::EngineModel;
using testing::expect_answer;
using testing::expected_answer;
using testing::kGpu;
using testing::run_all;
using testing::text;

std::vector<EngineRequest> requests() {
  std::vector<EngineRequest> all;
  for (std::int64_t i = 0; i < 40; ++i) {
    EngineRequest& request = all.emplace_back(
        EngineRequest{.prompt = text(1 + i * 5 % 90, i), .max_new_tokens = 3 + i * 7 % 60, .stop_tokens = {11}});
    if (i % 3 == 1)
      request.sampling = {.temperature = 0.8, .top_k = 20, .top_p = 0.95, .seed = static_cast<std::uint64_t>(i)};
    if (i % 3 == 2) request.sampling = {.temperature = 1, .repetition_penalty = 1.3, .seed = 4};
    if (i % 10 == 0) request.top_logprobs = 2;
  }
  return all;
}

TEST(CudaEngine, AnswersAreThoseOfTheCpu) {
  const EngineModel cpu, gpu(kGpu);
  const std::vector<EngineRequest> all = requests();
  std::vector<testing::Answer> expected;
  for (const EngineRequest& request : all) expected.push_back(expected_answer(cpu.lm, request));
  for (const EngineOptions& options :
       {EngineOptions{.max_sequences = 1, .cache_tokens = 1000}, EngineOptions{.max_sequences = 7, .cache_tokens = 700},
        EngineOptions{.max_sequences = 40, .cache_tokens = 9000, .prefill_tokens = 50}}) {
    Engine engine(gpu.lm, options);
    for (int round = 0; round < 2; ++round) {
      const std::vector<EngineResult> results = run_all(engine, all);
      for (std::size_t i = 0; i < results.size(); ++i) {
        SCOPED_TRACE(fmt::format("request {} of {} sequences", i, options.max_sequences));
        expect_answer(results[i], expected[i], 1e-3);
      }
    }
    EXPECT_EQ(engine.stats().free_tokens, engine.stats().cache_tokens);
  }
}

TEST(CudaEngine, HeadsThatNoDecodeKernelTakesAreGathered) {
  const EngineModel cpu({}, R"({"head_dim": 8})"), gpu(kGpu, R"({"head_dim": 8})");
  Engine engine(gpu.lm, {.max_sequences = 5, .cache_tokens = 1000});
  const std::vector<EngineRequest> all = requests();
  const std::vector<EngineResult> results = run_all(engine, all);
  for (std::size_t i = 0; i < results.size(); ++i) expect_answer(results[i], expected_answer(cpu.lm, all[i]), 1e-3);
}

// Passes with grammars do not run ahead; their graphs are captured anew for the allowed tokens.
TEST(CudaEngine, AnswersWithGrammarsAreThoseOfTheCpu) {
  if (testing::without_library()) GTEST_SKIP() << "built without XGrammar";
  const GrammarVocabulary vocabulary = testing::tiny_vocabulary();
  const GrammarCompiler compiler(vocabulary);
  const std::vector<std::shared_ptr<const Grammar>> grammars{
      nullptr, compiler.compile({GrammarKind::regex, "([a-e][0-9]){5,40}"}),
      compiler.compile(
          {GrammarKind::json_schema, R"({"type": "array", "items": {"enum": ["abc", true]}, "minItems": 2})"}),
      compiler.compile({GrammarKind::json})};
  std::vector<EngineRequest> with_grammars = requests();
  for (std::size_t i = 0; i < with_grammars.size(); ++i) {
    with_grammars[i].stop_tokens = {0};
    with_grammars[i].grammar = grammars[i % grammars.size()];
  }
  const EngineModel cpu, gpu(kGpu);
  Engine reference(cpu.lm, {.max_sequences = 40, .cache_tokens = 9000});
  const std::vector<EngineResult> expected = run_all(reference, with_grammars);
  for (const EngineOptions& options :
       {EngineOptions{.max_sequences = 1, .cache_tokens = 1000}, EngineOptions{.max_sequences = 7, .cache_tokens = 700},
        EngineOptions{.max_sequences = 40, .cache_tokens = 9000, .prefill_tokens = 50}}) {
    Engine engine(gpu.lm, options);
    // Without grammars first: slots change from one kind to the other.
    (void)run_all(engine, requests());
    for (int round = 0; round < 2; ++round) {
      const std::vector<EngineResult> results = run_all(engine, with_grammars);
      for (std::size_t i = 0; i < results.size(); ++i) {
        SCOPED_TRACE(fmt::format("request {} of {} sequences", i, options.max_sequences));
        EXPECT_EQ(results[i].reason, expected[i].reason) << results[i].error;
        expect_answer(results[i], {.tokens = expected[i].tokens, .logprobs = expected[i].logprobs}, 1e-3);
      }
    }
    const std::vector<EngineResult> again = run_all(engine, requests());
    for (std::size_t i = 0; i < again.size(); ++i)
      expect_answer(again[i], expected_answer(cpu.lm, requests()[i]), 1e-3);
  }
}

}  // namespace
}  // namespace quench
