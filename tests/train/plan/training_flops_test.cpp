#include "train/plan/training_flops.h"

#include <gtest/gtest.h>

#include "train/metrics/peak_flops.h"

namespace quench {
namespace {

using recipes::LinearGemm;

nn::ModelConfig small_model() {
  return nn::parse_model_config(
      Json::parse(R"({"model_type": "llama", "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 96,
                      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2})"),
      "config.json");
}

recipes::LayerConversion layer(std::int64_t in, std::int64_t out, std::vector<LinearGemm> float8) {
  recipes::LayerConversion row;
  row.in_features = in;
  row.out_features = out;
  row.float8 = std::move(float8);
  return row;
}

TEST(TrainingFlops, ProductsOfConvertedLayersAreFloat8) {
  using enum LinearGemm;
  const nn::ModelConfig model = small_model();
  const double all = model.training_flops_per_token(128);
  const TrainingFlops none = training_flops(model, std::vector{layer(64, 96, {})}, 128);
  EXPECT_EQ(none.float8, 0);
  EXPECT_EQ(none.high_precision, all);
  const std::vector layers{layer(64, 96, {forward, dgrad, wgrad}), layer(96, 64, {forward, dgrad}), layer(64, 64, {})};
  const TrainingFlops some = training_flops(model, layers, 128);
  EXPECT_EQ(some.float8, 6.0 * 64 * 96 + 4.0 * 64 * 96);
  EXPECT_EQ(some.total(), all);
  // Every linear layer and the head: attention is what remains.
  std::vector<recipes::LayerConversion> whole{layer(64, 1000, {forward, dgrad, wgrad})};
  for (int i = 0; i < 2; ++i)
    for (const auto& [in, out] : {std::pair{64, 128}, {64, 64}, {64, 192}, {96, 64}})
      whole.push_back(layer(in, out, {forward, dgrad, wgrad}));
  EXPECT_DOUBLE_EQ(training_flops(model, whole, 128).high_precision, 6.0 * 2 * 64 * 128);
}

TEST(TrainingFlops, FrozenParametersSpareGradients) {
  using enum LinearGemm;
  nn::ModelConfig model = small_model();
  model.tie_word_embeddings = true;
  const double all = model.training_flops_per_token(128);
  std::vector layers{layer(64, 96, {forward, dgrad, wgrad}), layer(96, 64, {})};
  layers[0].name = "model.layers.0.mlp.gate_up_proj";
  layers[1].name = "model.layers.1.mlp.down_proj";
  const TrainingFlops no_wgrad =
      training_flops(model, layers, 128, std::nullopt, {.weight_gradients = {layers[0].name}, .tied_head = true});
  EXPECT_EQ(no_wgrad.float8, 4.0 * 64 * 96);
  EXPECT_EQ(no_wgrad.total(), all - 2.0 * 64 * 96 - 2.0 * 1000 * 64);
  const TrainingFlops no_backward =
      training_flops(model, layers, 128, std::nullopt, {.weight_gradients = {layers[0].name}, .layers = 1});
  EXPECT_EQ(no_backward.float8, 2.0 * 64 * 96);
  // Half of the backward FLOPs of attention, which are two thirds.
  const double attention = all - model.training_flops_per_token(0);
  EXPECT_DOUBLE_EQ(no_backward.total(), all - 4.0 * 64 * 96 - attention / 3);
}

TEST(TrainingFlops, SharesSayTheTypes) {
  EXPECT_EQ(shares({.float8 = 0, .high_precision = 5}, DType::f32), "100% f32");
  EXPECT_EQ(shares({.float8 = 60, .high_precision = 40}, DType::bf16), "60.0% float8, 40.0% bf16");
}

TEST(TrainingFlops, EveryTypeHasItsOwnPeak) {
  const TrainingFlops half{.float8 = 1e12, .high_precision = 1e12}, high{.float8 = 0, .high_precision = 2e12};
  const double bf16 = *bf16_peak_flops("NVIDIA H200");
  EXPECT_EQ(float8_peak_flops("NVIDIA H200"), 2 * bf16);
  EXPECT_DOUBLE_EQ(*sol_seconds(high, "NVIDIA H200"), 2e12 / bf16);
  EXPECT_DOUBLE_EQ(*sol_seconds(half, "NVIDIA H200"), 1.5e12 / bf16);
  // No float8 tensor cores: no light for float8.
  EXPECT_EQ(float8_peak_flops("NVIDIA A100-SXM4-80GB"), std::nullopt);
  EXPECT_EQ(sol_seconds(half, "NVIDIA A100-SXM4-80GB"), std::nullopt);
  EXPECT_DOUBLE_EQ(*sol_seconds(high, "NVIDIA A100-SXM4-80GB"), 2e12 / 312e12);
  EXPECT_EQ(sol_seconds(high, "AMD EPYC 9575F"), std::nullopt);
  EXPECT_EQ(float8_peak_flops("AMD EPYC 9575F"), std::nullopt);
}

}  // namespace
}  // namespace quench
