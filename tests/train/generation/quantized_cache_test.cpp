// Generation and scoring through KV caches of codes.

#include <gtest/gtest.h>

#include <cmath>

#include "train/evaluation/scoring.h"
#include "train/generation/batch_generator.h"
#include "train/generation/decoder.h"

namespace quench {
namespace {

constexpr std::int64_t kCacheVocabulary = 40;

class QuantizedCache : public ::testing::TestWithParam<const KvFormat*> {
 protected:
  QuantizedCache() {
    model.initialize(7);
    model.set_kv_cache({.format = GetParam(), .scales = {}});
  }

  nn::CausalLm model{nn::parse_model_config(Json::parse(R"({"model_type": "llama", "vocab_size": 40, "hidden_size": 32,
        "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "initializer_range": 0.3, "max_position_embeddings": 64})"),
                                            "config.json"),
                     nn::ParameterOptions{}};
};

std::vector<std::int32_t> text(std::int32_t length, std::int32_t seed = 3) {
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < length; ++i)
    ids.push_back((i * i + seed * i) % static_cast<std::int32_t>(kCacheVocabulary));
  return ids;
}

TEST_P(QuantizedCache, TextsSideBySideEqualSingleOnes) {
  std::vector<BatchPrompt> prompts;
  for (std::int32_t i = 0; i < 5; ++i) prompts.push_back({text(2 * i + 1, i + 1), 5 + 3 * i});
  for (const double temperature : {0.0, 0.9}) {
    GenerationOptions options{.sampling = {.temperature = temperature, .seed = 3}};
    int seen = 0;
    generate_batch(model, prompts, options, 3, [&](std::size_t i, const GenerationResult& result) {
      ++seen;
      options.max_new_tokens = prompts[i].max_new_tokens;
      EXPECT_EQ(result.tokens, generate(model, prompts[i].tokens, options).tokens) << i;
    });
    EXPECT_EQ(seen, 5);
  }
}

TEST_P(QuantizedCache, AConversationContinuesItsCache) {
  GenerationSession session(model);
  const GenerationOptions options{.max_new_tokens = 6, .sampling = {.temperature = 0}};
  // Allocates the cache that the turns below share.
  (void)session.generate(text(4, 7), {.max_new_tokens = 30, .sampling = {.temperature = 0}});
  std::vector<std::int32_t> turns = text(9);
  const GenerationResult first = session.generate(turns, options);
  turns.insert(turns.end(), first.tokens.begin(), first.tokens.end());
  turns.push_back(11);
  const GenerationResult second = session.generate(turns, options);
  EXPECT_GT(session.reused(), 9u);
  EXPECT_EQ(second.tokens, generate(model, turns, options).tokens);
}

// Perplexity is that of decoding: every token through the cache.
TEST_P(QuantizedCache, ScoresAreThoseOfDecoding) {
  const std::vector<std::int32_t> ids = text(30);
  double expected = 0;
  Decoder decoder(model, 30);
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
    const Tensor row = decoder.logits(std::span(ids).subspan(i, 1));
    const float* values = row.data<float>();
    double sum = 0;
    for (std::int64_t t = 0; t < kCacheVocabulary; ++t) sum += std::exp(static_cast<double>(values[t]));
    expected += std::log(sum) - static_cast<double>(values[ids[i + 1]]);
  }
  const auto score = [&] {
    WindowScorer scorer(model);
    for (int document = 0; document < 2; ++document)  // the second reads nothing of the first
      scorer.add({.inputs = {ids.begin(), ids.end() - 1}, .targets = {ids.begin() + 1, ids.end()}, .first_target = 1},
                 document);
    return scorer.finish() / 2;
  };
  const double through = score();
  EXPECT_NEAR(through, expected, 2e-3 * expected);
  model.set_kv_cache({});
  const double plain = score();
  EXPECT_NE(through, plain);
  EXPECT_NEAR(through, plain, 0.02 * plain);
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantizedCache, ::testing::Values(&kv_formats()[0], &kv_formats()[1]),
                         [](const auto& instance) { return std::string(instance.param->name); });

}  // namespace
}  // namespace quench
