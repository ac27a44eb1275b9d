#include "train/generation/warm_up.h"

#include <gtest/gtest.h>

#include <thread>

#include "core/device/call_counter.h"
#include "tests/cuda/gpu.h"
#include "train/generation/generator.h"

namespace quench {
namespace {

using testing::kGpu;

nn::ModelConfig warm_up_config() {
  return nn::parse_model_config(
      Json::parse(R"({"model_type": "llama", "vocab_size": 56, "hidden_size": 128, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.1,
        "max_position_embeddings": 700})"),
      "config.json");
}

// What a GPU's libraries make on the first use of a shape.
std::int64_t made() {
  return call_count("gemm.plans") + call_count("attention.cudnn_graphs");
}

std::vector<std::int32_t> continue_text(const nn::CausalLm& model, std::int64_t length) {
  std::vector<std::int32_t> prompt;
  for (std::int64_t i = 0; i < length; ++i) prompt.push_back(static_cast<std::int32_t>(i * i % 56));
  return generate(model, prompt, {.max_new_tokens = 5}).tokens;
}

TEST(CudaWarmUp, FirstPassesFindEverythingMade) {
  nn::CausalLm model(warm_up_config(), nn::ParameterOptions{.dtype = DType::bf16, .device = kGpu});
  model.initialize(3);
  std::int64_t before = made();
  (void)continue_text(model, 41);
  EXPECT_GT(made(), before) << "a prompt without rehearsal makes plans";
  // Next to a thread that writes the weights.
  nn::CausalLm other(warm_up_config(), nn::ParameterOptions{.dtype = DType::bf16, .device = kGpu});
  std::thread warm_up([&] { warm_up_generation(other, 333); });
  other.initialize(3);
  warm_up.join();
  before = made();
  const std::vector<std::int32_t> text = continue_text(other, 333);
  EXPECT_EQ(made(), before);
  EXPECT_EQ(text, continue_text(model, 333)) << "a rehearsal leaves the model as it is";
}

TEST(CudaWarmUp, LengthsBeyondTheContextAreCut) {
  nn::CausalLm model(warm_up_config(), nn::ParameterOptions{.device = kGpu});
  model.initialize(3);
  EXPECT_NO_THROW(warm_up_generation(model, 0));
  EXPECT_NO_THROW(warm_up_generation(model, 100000));
}

}  // namespace
}  // namespace quench
