#include "train/generation/batch_generator.h"

#include <gtest/gtest.h>

namespace quench {
namespace {

nn::ModelConfig config(const char* more = "") {
  return nn::parse_model_config(
      Json::parse(fmt::format(R"({{"model_type": "llama", "vocab_size": 40, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.3,
        "max_position_embeddings": 64{}}})",
                              more)),
      "config.json");
}

std::vector<BatchPrompt> prompts() {
  std::vector<BatchPrompt> all;
  for (std::int32_t i = 0; i < 7; ++i) {
    BatchPrompt& prompt = all.emplace_back();
    for (std::int32_t j = 0; j <= 2 * i; ++j) prompt.tokens.push_back((i * 7 + j * 3) % 40);
    prompt.max_new_tokens = 5 + (i * 5) % 17;
  }
  return all;
}

// Each text as if it were alone, however many grow next to it.
TEST(BatchGenerator, TextsEqualSingleGeneration) {
  for (const char* more : {"", R"(, "sliding_window": 6, "architectures": ["MistralForCausalLM"])",
                           R"(, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0})"}) {
    nn::ModelConfig shape;
    try {
      shape = config(more);
    } catch (const Error&) {
      continue;  // this family does not have it
    }
    nn::CausalLm model{shape, nn::ParameterOptions{}};
    model.initialize(7);
    const std::vector<BatchPrompt> all = prompts();
    for (const double temperature : {0.0, 0.9})
      for (const std::int64_t width : {1, 3, 16}) {
        GenerationOptions options{.sampling = {.temperature = temperature, .seed = 3}, .stop_tokens = {5}};
        std::vector<int> seen(all.size());
        generate_batch(model, all, options, width, [&](std::size_t i, const GenerationResult& result) {
          ++seen[i];
          options.max_new_tokens = all[i].max_new_tokens;
          const GenerationResult alone = generate(model, all[i].tokens, options);
          EXPECT_EQ(result.tokens, alone.tokens) << i << " of width " << width;
          EXPECT_EQ(result.stopped, alone.stopped);
        });
        EXPECT_EQ(seen, std::vector<int>(all.size(), 1));
      }
  }
}

TEST(BatchGenerator, APromptThatDoesNotFitIsNamed) {
  nn::CausalLm model{config(), nn::ParameterOptions{}};
  model.initialize(7);
  std::vector<BatchPrompt> all = prompts();
  all[3].max_new_tokens = 100;
  int results = 0;
  try {
    generate_batch(model, all, {}, 2, [&](std::size_t, const GenerationResult&) { ++results; });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_config);
    EXPECT_NE(std::string(error.what()).find("prompt 4: prompt of 7 tokens"), std::string::npos) << error.what();
  }
  EXPECT_EQ(results, 0);
  EXPECT_THROW(generate_batch(model, prompts(), {}, 0, {}), Error);
  EXPECT_NO_THROW(generate_batch(model, {}, {}, 2, {}));
}

}  // namespace
}  // namespace quench
