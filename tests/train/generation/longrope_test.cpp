// Generation across the length at which RoPE scaling longrope changes its factors: cached keys are computed again.

#include <gtest/gtest.h>

#include <algorithm>

#include "autograd/functions.h"
#include "train/evaluation/scoring.h"
#include "train/generation/batch_generator.h"

namespace quench {
namespace {

constexpr std::int64_t kOriginal = 12;

class Longrope : public ::testing::Test {
 protected:
  Longrope() { model_.initialize(7); }

  static nn::ModelConfig config() {
    return nn::parse_model_config(
        Json::parse(R"({"model_type": "phi3", "vocab_size": 40, "hidden_size": 32, "intermediate_size": 48,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.3,
            "max_position_embeddings": 64, "original_max_position_embeddings": 12, "eos_token_id": 5,
            "rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": [1, 3, 9, 27]}})"),
        "config.json");
  }

  // Greedy, each token by a pass over the whole text.
  std::vector<std::int32_t> without_cache(std::vector<std::int32_t> text, std::int64_t count) const {
    const autograd::NoGrad no_grad;
    std::vector<std::int32_t> made;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto length = static_cast<std::int64_t>(text.size());
      const autograd::Variable hidden = model_.hidden(Tensor::from_values<std::int32_t>({length}, text),
                                                      model_.make_context({{0, length, 0, length}}, length));
      const Tensor logits = model_.logits(autograd::Variable(hidden.value().narrow(0, length - 1, 1)));
      const auto* row = logits.data<float>();
      made.push_back(static_cast<std::int32_t>(std::max_element(row, row + logits.numel()) - row));
      text.push_back(made.back());
    }
    return made;
  }

  nn::CausalLm model_{config(), nn::ParameterOptions{}};
};

TEST_F(Longrope, TextsMatchPassesWithoutCache) {
  GenerationSession session(model_);
  // A session keeps the first tokens of the text before: of a longer one, with other keys.
  for (const std::int64_t length : {5, 11, 12, 13, 20, 3, 12, 6}) {
    std::vector<std::int32_t> prompt;
    for (std::int64_t i = 0; i < length; ++i) prompt.push_back(static_cast<std::int32_t>((7 + 3 * i) % 40));
    for (const std::int64_t count : {2, 12}) {
      SCOPED_TRACE(fmt::format("{} tokens after {}", count, length));
      const std::vector<std::int32_t> expected = without_cache(prompt, count);
      GenerationOptions options{.sampling = {.temperature = 0.0}};
      options.max_new_tokens = count;
      EXPECT_EQ(generate(model_, prompt, options).tokens, expected);
      EXPECT_EQ(session.generate(prompt, options).tokens, expected);
    }
  }
}

TEST_F(Longrope, SeveralTextsAreThoseOfOneByOne) {
  std::vector<BatchPrompt> prompts;
  for (std::int32_t i = 0; i < 5; ++i)
    prompts.push_back(
        {.tokens = std::vector<std::int32_t>(static_cast<std::size_t>(4 * i + 1), i + 6), .max_new_tokens = kOriginal});
  generate_batch(model_, prompts, {.sampling = {.temperature = 0.0}}, 3,
                 [&](std::size_t i, const GenerationResult& result) {
                   EXPECT_EQ(result.tokens, without_cache(prompts[i].tokens, kOriginal)) << i;
                 });
}

// The length of another document decides nothing.
TEST_F(Longrope, EachWindowIsScoredAsAlone) {
  const auto score = [&](const std::vector<std::int64_t>& lengths) {
    std::vector<double> nll(lengths.size());
    WindowScorer scorer(model_, "document",
                        [&](std::int64_t i, double value) { nll[static_cast<std::size_t>(i)] = value; });
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      ScoringWindow window;
      for (std::int64_t t = 0; t < lengths[i]; ++t) {
        window.inputs.push_back(static_cast<std::int32_t>((5 + 3 * t) % 40));
        window.targets.push_back(static_cast<std::int32_t>((8 + 3 * t) % 40));
      }
      scorer.add(std::move(window), static_cast<std::int64_t>(i));
    }
    (void)scorer.finish();
    return nll;
  };
  const std::vector<double> all = score({8, 30, 6, 8, 12, 13});
  EXPECT_NEAR(all[0], score({8})[0], 1e-4);
  EXPECT_NEAR(all[1], score({30})[0], 1e-4);
  EXPECT_NEAR(all[2], score({6})[0], 1e-4);
  EXPECT_NEAR(all[5], score({13})[0], 1e-4);
}

}  // namespace
}  // namespace quench
