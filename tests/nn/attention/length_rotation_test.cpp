// RoPE scalings that depend on a sequence's length (dynamic, longrope): each sequence of a pass has its own.

#include <gmock/gmock.h>

#include "nn/decoder/causal_lm.h"
#include "tests/nn/spec/config_testing.h"

namespace quench::nn {
namespace {

using testing::parsed;

constexpr const char* kLongrope =
    R"({"model_type": "phi3", "vocab_size": 40, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.3,
    "max_position_embeddings": 64, "original_max_position_embeddings": 12,
    "rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": [1, 3, 9, 27]}})";
constexpr const char* kDynamic =
    R"({"model_type": "llama", "vocab_size": 40, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.3,
    "max_position_embeddings": 12, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}})";
constexpr const char* kLatent = R"({"model_type": "deepseek_v3", "vocab_size": 40, "hidden_size": 32,
    "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
    "q_lora_rank": 12, "kv_lora_rank": 12, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
    "first_k_dense_replace": 2, "n_group": 1, "topk_group": 1, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 8, "n_shared_experts": 1, "initializer_range": 0.3, "max_position_embeddings": 12,
    "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}})";

// Losses of each token, then the gradient of each parameter.
std::vector<std::vector<float>> losses_and_gradients(const char* config, const std::vector<std::int64_t>& lengths) {
  CausalLm model(parsed(Json::parse(config)), {});
  model.initialize(7);
  std::vector<std::int32_t> ids, labels;
  std::vector<SequenceRange> sequences;
  for (const std::int64_t length : lengths) {
    sequences.push_back({std::ssize(ids), length, std::ssize(ids), length});
    for (std::int64_t i = 0; i < length; ++i) {
      ids.push_back(static_cast<std::int32_t>((7 * i + length) % 40));
      labels.push_back(static_cast<std::int32_t>((7 * i + 7 + length) % 40));
    }
  }
  const std::int64_t tokens = std::ssize(ids);
  autograd::Tape tape;
  Variable loss;
  Tensor losses;
  {
    const autograd::TapeScope scope(tape);
    loss = model.loss(Tensor::from_values<std::int32_t>({tokens}, ids),
                      Tensor::from_values<std::int32_t>({tokens}, labels), model.make_context(sequences, tokens), 1.0f,
                      {}, &losses);
  }
  tape.backward(loss);
  const auto values = [](const Tensor& x) { return std::vector<float>(x.data<float>(), x.data<float>() + x.numel()); };
  std::vector<std::vector<float>> all{values(losses)};
  for (Parameter* parameter : model.parameters()) all.push_back(values(parameter->variable.grad()));
  return all;
}

TEST(LengthRotation, SequencesInABatchAreIndependent) {
  const std::vector<std::int64_t> lengths{9, 30, 12, 13, 30, 21};
  for (const char* config : {kLongrope, kDynamic, kLatent}) {
    SCOPED_TRACE(config);
    const auto together = losses_and_gradients(config, lengths);
    std::vector<float> losses;
    std::vector<std::vector<double>> sums(together.size());
    for (const std::int64_t length : lengths) {
      const auto alone = losses_and_gradients(config, {length});
      losses.insert(losses.end(), alone[0].begin(), alone[0].end());
      for (std::size_t i = 1; i < alone.size(); ++i) {
        sums[i].resize(alone[i].size());
        for (std::size_t j = 0; j < alone[i].size(); ++j) sums[i][j] += static_cast<double>(alone[i][j]);
      }
    }
    EXPECT_THAT(together[0], ::testing::Pointwise(::testing::FloatNear(1e-5f), losses));
    for (std::size_t i = 1; i < together.size(); ++i)
      for (std::size_t j = 0; j < together[i].size(); ++j)
        ASSERT_NEAR(together[i][j], sums[i][j], 1e-4 * std::max(1.0, std::abs(sums[i][j]))) << i << " " << j;
  }
}

TEST(LengthRotation, RowsOfATableFollowTheLengths) {
  const ModelConfig config = parsed(Json::parse(kLongrope));
  LayerRotations rotations(config);
  const auto rows = [&](const std::vector<std::int64_t>& lengths) {
    std::vector<SequenceRange> sequences;
    for (const std::int64_t length : lengths) sequences.push_back({0, length, 0, length});
    return rotations.rows(sequences, Device{});
  };
  const auto mixed = rows({9, 30, 12, 13});
  EXPECT_THAT(mixed.first, ::testing::ElementsAre(0, 32, 0, 32));
  EXPECT_EQ(mixed.tables->at(0).cos.size(0), 64);
  const auto alone = rows({30});
  EXPECT_THAT(alone.first, ::testing::IsEmpty());
  EXPECT_EQ(std::vector<float>(alone.tables->at(0).cos.data<float>(), alone.tables->at(0).cos.data<float>() + 32 * 4),
            std::vector<float>(mixed.tables->at(0).cos.data<float>() + 32 * 4,
                               mixed.tables->at(0).cos.data<float>() + 64 * 4));
  EXPECT_EQ(rows({20, 4}).tables, mixed.tables) << "not built again";
  EXPECT_TRUE(rotated_alike(config, 13, 60));
  EXPECT_FALSE(rotated_alike(config, 12, 13));
  EXPECT_EQ(longest_common_rotation(config), 12);
  EXPECT_EQ(longest_common_rotation(parsed(Json::parse(kDynamic))), 12);
}

}  // namespace
}  // namespace quench::nn
