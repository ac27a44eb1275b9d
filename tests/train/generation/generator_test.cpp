#include "train/generation/generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/tensor/host_copy.h"
#include "train/generation/decoder.h"

namespace quench {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kVocabulary = 40;
const std::vector<std::int32_t> kPrompt{3, 1, 4, 1, 5};

nn::ModelConfig tiny_config() {
  return nn::parse_model_config(
      Json::parse(R"({"model_type": "llama", "vocab_size": 40, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.3,
        "max_position_embeddings": 64})"),
      "config.json");
}

class Generator : public ::testing::Test {
 protected:
  Generator() { model.initialize(7); }

  nn::CausalLm model{tiny_config(), nn::ParameterOptions{}};
};
using TextDecoder = Generator;

// Without a cache: the whole text through the model for every token.
std::vector<std::int32_t> greedy_by_whole_passes(const nn::CausalLm& model, std::int64_t count) {
  const autograd::NoGrad no_grad;
  std::vector<std::int32_t> text = kPrompt;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto n = static_cast<std::int64_t>(text.size());
    const Tensor ids = Tensor::from_values<std::int32_t>({n}, text);
    const Tensor hidden = model.hidden(ids, model.make_context({{0, n, 0, n}}, n)).value();
    const Tensor logits = model.logits(autograd::Variable(hidden.narrow(0, n - 1, 1)));
    const float* row = logits.data<float>();
    text.push_back(static_cast<std::int32_t>(std::max_element(row, row + kVocabulary) - row));
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(kPrompt.size()), text.end()};
}

TEST_F(Generator, GreedyTokensMatchPassesWithoutCache) {
  const GenerationResult result = generate(model, kPrompt, {.max_new_tokens = 30, .sampling = {.temperature = 0}});
  EXPECT_EQ(result.tokens, greedy_by_whole_passes(model, 30));
  EXPECT_FALSE(result.stopped);
}

// A repetition penalty next to 1 changes no order here, but the host chooses.
TEST_F(Generator, TheHostChoosesTheSameTokens) {
  const GenerationOptions options{.max_new_tokens = 30,
                                  .sampling = {.temperature = 0, .repetition_penalty = 1.0 + 1e-12}};
  EXPECT_EQ(generate(model, kPrompt, options).tokens, greedy_by_whole_passes(model, 30));
}

TEST_F(Generator, StopsAfterAStopToken) {
  const std::vector<std::int32_t> all = greedy_by_whole_passes(model, 20);
  const std::int32_t stop = all[7];
  const auto end = std::find(all.begin(), all.end(), stop) + 1;
  for (const double penalty : {1.0, 1.0 + 1e-12}) {
    const GenerationResult result = generate(
        model, kPrompt,
        {.max_new_tokens = 20, .sampling = {.temperature = 0, .repetition_penalty = penalty}, .stop_tokens = {stop}});
    EXPECT_EQ(result.tokens, std::vector<std::int32_t>(all.begin(), end));
    EXPECT_TRUE(result.stopped);
  }
}

TEST_F(Generator, TheCallerSeesEveryTokenAndMayStop) {
  for (const double temperature : {0.0, 1.0}) {
    std::vector<std::int32_t> shown;
    const GenerationResult result =
        generate(model, kPrompt, {.max_new_tokens = 20, .sampling = {.temperature = temperature}},
                 [&](std::int32_t token) { return shown.push_back(token), shown.size() < 4; });
    EXPECT_EQ(shown.size(), 4u);
    EXPECT_EQ(result.tokens, shown);
    EXPECT_FALSE(result.stopped);
  }
}

TEST_F(Generator, FillsTheContextToItsEndAndNoFurther) {
  const auto room = static_cast<std::int64_t>(64 - kPrompt.size());
  for (const double temperature : {0.0, 1.0}) {
    GenerationOptions options{.max_new_tokens = room, .sampling = {.temperature = temperature}};
    EXPECT_EQ(generate(model, kPrompt, options).tokens.size(), static_cast<std::size_t>(room));
    ++options.max_new_tokens;
    EXPECT_THROW((void)generate(model, kPrompt, options), Error);
  }
  EXPECT_TRUE(generate(model, kPrompt, {.max_new_tokens = 0}).tokens.empty());
}

TEST_F(Generator, LogitsThatAreNotFiniteAreAnErrorThatNamesTheToken) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), inf, -inf}) {
    for (nn::Parameter* parameter : model.parameters())
      if (parameter->name == "lm_head.weight") parameter->variable.value().data<float>()[9 * 32] = value;
    for (const double temperature : {0.0, 1.0}) {
      try {
        (void)generate(model, kPrompt, {.max_new_tokens = 3, .sampling = {.temperature = temperature}});
        FAIL() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::nonfinite);
        EXPECT_THAT(error.what(), HasSubstr("logits after 5 tokens are not finite, the first that of token 9"));
      }
    }
  }
}

TEST_F(Generator, ASeedDrawsTheSameTextAgain) {
  const auto text = [&](std::uint64_t seed) {
    return generate(model, kPrompt, {.max_new_tokens = 30, .sampling = {.temperature = 1, .seed = seed}}).tokens;
  };
  EXPECT_EQ(text(1), text(1));
  EXPECT_NE(text(1), text(2));
}

// Turns of a conversation: each text begins as the one before it, or does not.
TEST_F(Generator, ASessionComputesSharedTokensOnce) {
  for (const double temperature : {0.0, 0.8}) {
    GenerationSession session(model);
    const GenerationOptions options{.max_new_tokens = 9, .sampling = {.temperature = temperature, .seed = 4}};
    std::vector<std::int32_t> text = kPrompt;
    for (int turn = 0; turn < 4; ++turn) {
      const GenerationResult result = session.generate(text, options);
      EXPECT_EQ(result.tokens, generate(model, text, options).tokens) << turn;
      text.insert(text.end(), result.tokens.begin(), result.tokens.end());
      text.push_back(turn);
    }
    text = {3, 1, 7, 7};  // another text from its third token on
    EXPECT_EQ(session.generate(text, options).tokens, generate(model, text, options).tokens);
    EXPECT_EQ(session.reused(), 2u);
    // The same text again: its last token gives the logits.
    EXPECT_EQ(session.generate(text, options).tokens, generate(model, text, options).tokens);
    EXPECT_EQ(session.reused(), 3u);
  }
}

TEST_F(Generator, SessionIsUsableAfterAnError) {
  GenerationSession session(model);
  const GenerationOptions options{.max_new_tokens = 5};
  (void)session.generate(kPrompt, options);
  EXPECT_THROW((void)session.generate({}, options), Error);
  EXPECT_THROW((void)session.generate(kPrompt, options, [](std::int32_t) -> bool { throw Error(ErrorCode::io, "x"); }),
               Error);
  EXPECT_EQ(session.generate(kPrompt, options).tokens, generate(model, kPrompt, options).tokens);
}

// Tokens one by one give the logits of one pass.
TEST_F(TextDecoder, PassesOfAnyLengthAddUp) {
  Decoder whole(model, 8), parts(model, 8);
  const Tensor expected = whole.logits(kPrompt);
  (void)parts.logits(std::span(kPrompt).first(2));
  (void)parts.logits(std::span(kPrompt).subspan(2, 2));
  const HostCopy last(parts.logits(std::span(kPrompt).last(1)));
  for (std::int64_t i = 0; i < kVocabulary; ++i)
    EXPECT_NEAR(last.get().data<float>()[i], expected.data<float>()[i], 1e-5) << i;
}

TEST_F(TextDecoder, ForgetsTheEnd) {
  Decoder decoder(model, 8), fresh(model, 8);
  (void)decoder.logits(kPrompt);
  decoder.rewind(2);
  EXPECT_EQ(decoder.length(), 2);
  const HostCopy again(decoder.logits(std::span(kPrompt).subspan(2)));
  const Tensor expected = fresh.logits(kPrompt);
  for (std::int64_t i = 0; i < kVocabulary; ++i)
    EXPECT_NEAR(again.get().data<float>()[i], expected.data<float>()[i], 1e-5) << i;
  EXPECT_THROW(decoder.rewind(6), Error);
}

TEST_F(TextDecoder, RefusesMoreTokensThanItHasRoomFor) {
  Decoder decoder(model, 4);
  EXPECT_THROW((void)decoder.logits(kPrompt), Error);
}

}  // namespace
}  // namespace quench
