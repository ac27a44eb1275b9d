// Divergence of next tokens between two models on a GPU.

#include <gtest/gtest.h>

#include "tests/cuda/gpu.h"
#include "train/evaluation/divergence.h"

namespace quench {
namespace {

using testing::kGpu;

struct SmallModel {
  SmallModel(std::uint64_t seed, Device device)
      : lm(nn::parse_model_config(Json::parse(R"({"model_type": "llama", "vocab_size": 1000, "hidden_size": 64,
        "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "initializer_range": 0.2, "max_position_embeddings": 512})"),
                                  "config.json"),
           nn::ParameterOptions{.device = device}) {
    lm.initialize(seed);
  }
  nn::CausalLm lm;
};

TEST(CudaDivergence, IsThatOfTheCpu) {
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < 301; ++i) ids.push_back((i * i + 3 * i) % 1000);
  const auto compare = [&](Device device, std::int64_t logits_bytes) {
    const SmallModel reference(1, device), model(2, device);
    DivergenceMeter meter(reference.lm, logits_bytes);
    WindowScorer scorer(model.lm);
    scorer.on_pass([&](const ScoredPass& pass) { meter.add(pass); });
    scorer.add({.inputs = {ids.begin(), ids.end() - 1}, .targets = {ids.begin() + 1, ids.end()}, .first_target = 1}, 0);
    (void)scorer.finish();
    return meter.finish();
  };
  const DivergenceReport expected = compare(Device{}, 1 << 20);
  for (const std::int64_t bytes : {std::int64_t{1} << 28, std::int64_t{1} << 18}) {
    const DivergenceReport report = compare(kGpu, bytes);
    EXPECT_EQ(report.tokens, 300);
    EXPECT_NEAR(report.mean, expected.mean, 1e-3 * expected.mean);
    EXPECT_NEAR(report.largest, expected.largest, 1e-2 * expected.largest);
    EXPECT_NEAR(report.same_top, expected.same_top, 0.01);
  }
}

}  // namespace
}  // namespace quench
