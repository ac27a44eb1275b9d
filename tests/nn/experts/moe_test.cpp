#include "nn/experts/moe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "nn/decoder/causal_lm.h"
#include "nn/experts/expert_load.h"
#include "nn/modules/mlp.h"
#include "tests/nn/spec/config_testing.h"

namespace quench::nn {
namespace {

using testing::fault_of;
using ::testing::HasSubstr;
using testing::parsed;
using testing::sparse_layers;

Json qwen() {
  return Json::parse(R"({"model_type": "qwen3_moe", "vocab_size": 48, "hidden_size": 32, "intermediate_size": 48,
    "moe_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2, "head_dim": 16, "num_hidden_layers": 4,
    "num_attention_heads": 2, "num_key_value_heads": 1})");
}

TEST(Moe, DenseAndSparseLayersMix) {
  Json json = qwen();
  json.set("decoder_sparse_step", 2);
  json.set("mlp_only_layers", Json::parse("[3]"));
  const ModelConfig config = parsed(json);
  EXPECT_EQ(sparse_layers(config), (std::vector<bool>{false, true, false, false}));
  CausalLm model(config, {});
  std::set<std::string> names;
  for (const Parameter* p : model.parameters()) names.insert(p->name);
  EXPECT_TRUE(names.contains("model.layers.0.mlp.gate_up_proj.weight"));
  EXPECT_TRUE(names.contains("model.layers.1.mlp.experts.gate_up_proj.weight"));
  EXPECT_TRUE(names.contains("model.layers.1.mlp.gate.weight"));
  // Written, it reads the same.
  EXPECT_EQ(sparse_layers(parsed(to_hf_json(config, DType::f32))), sparse_layers(config));
}

TEST(Moe, PiecesHaveCheckpointNamesAndRows) {
  Json json = qwen();
  CausalLm model(parsed(json), {});
  for (const Parameter* p : model.parameters()) {
    if (p->name != "model.layers.2.mlp.experts.gate_up_proj.weight") continue;
    ASSERT_EQ(p->pieces.size(), 8u);
    EXPECT_EQ(p->pieces[3].hf_name, "model.layers.2.mlp.experts.1.up_proj.weight");
    EXPECT_EQ(p->pieces[3].row_begin, 72);
    EXPECT_EQ(p->pieces[3].rows, 24);
  }
  json.set("model_type", "mixtral");
  for (const char* key : {"moe_intermediate_size", "num_experts"}) json.erase(key);
  json.set("num_local_experts", 4);
  CausalLm mixtral(parsed(json), {});
  std::set<std::string> names;
  for (const Parameter* p : mixtral.parameters())
    for (const ParameterPiece& piece : p->pieces) names.insert(piece.hf_name);
  EXPECT_TRUE(names.contains("model.layers.0.block_sparse_moe.gate.weight"));
  EXPECT_TRUE(names.contains("model.layers.3.block_sparse_moe.experts.3.w2.weight"));
}

TEST(Moe, SizesCountAllExpertsAndActiveOnes) {
  const ModelConfig config = parsed(qwen());
  CausalLm model(config, {});
  std::int64_t total = 0;
  for (const Parameter* p : model.parameters()) total += p->numel();
  EXPECT_EQ(config.parameter_count(), total);
  EXPECT_EQ(total - config.active_parameter_count(), 4 * 2 * 3 * 32 * 24) << "two of four experts in four layers";
  Json json = qwen();
  json.set("num_experts", 8);
  const ModelConfig more = parsed(json);
  EXPECT_EQ(more.training_flops_per_token(64) - config.training_flops_per_token(64), 6.0 * 4 * 4 * 32)
      << "of more experts only the router's product is more work";
}

TEST(Moe, RefusesInvalidConfigs) {
  Json json = qwen();
  json.set("num_experts_per_tok", 5);
  EXPECT_THAT(fault_of(json), HasSubstr("num_experts_per_tok: 5 experts for each token of a model with 4"));
  json = qwen();
  json.set("mlp_only_layers", Json::parse("[4]"));
  EXPECT_THAT(fault_of(json), HasSubstr("mlp_only_layers: 4 is no layer of this model"));
  json = qwen();
  json.set("num_experts", 0);
  EXPECT_THAT(fault_of(json), HasSubstr("num_experts: 0 is outside"));
  json = qwen();
  json.set("router_jitter_noise", 0.1);
  EXPECT_THAT(fault_of(json), HasSubstr("router_jitter_noise"));
  json = qwen();
  json.set("shared_expert_intermediate_size", 64);
  EXPECT_THAT(fault_of(json), HasSubstr("shared_expert_intermediate_size"));
}

TEST(Moe, AuxiliaryLossNeedsOutputRouterLogits) {
  Json json = qwen();
  json.set("router_aux_loss_coef", 0.02);
  EXPECT_EQ(parsed(json).router_balance_loss, 0.0f);
  json.set("output_router_logits", true);
  EXPECT_FLOAT_EQ(parsed(json).router_balance_loss, 0.02f);
}

// A layer that runs again for its backward pass does not count its tokens twice, and every way gives the same bits.
TEST(Moe, LoadIsCountedOnce) {
  CausalLm model(parsed(qwen()), {});
  model.initialize(1);
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 65; ++i) tokens.push_back(i * i % 48);
  const std::span<const std::int32_t> all = tokens;
  const Tensor ids = Tensor::from_values<std::int32_t>({64}, all.first(64)),
               labels = Tensor::from_values<std::int32_t>({64}, all.last(64));
  std::vector<std::vector<double>> shares;
  for (const auto level : {autograd::Recompute::none, autograd::Recompute::selective, autograd::Recompute::full}) {
    ExpertLoad load(4, 4, Device{});
    ForwardContext context = model.make_context({{0, 64, 0, 64}}, 64);
    context.recompute = level;
    context.expert_load = &load;
    context.router_terms = {.balance = 0.01f, .z = 0.01f};
    autograd::Tape tape(level);
    Variable root;
    {
      const autograd::TapeScope scope(tape);
      root = model.loss(ids, labels, context, 1.0f / 64);
    }
    tape.backward(root);
    const auto layers = load.read();
    ASSERT_EQ(layers.size(), 4u);
    for (const ExpertLoad::Layer& layer : layers) {
      double sum = 0;
      for (const double share : layer.share) sum += share;
      EXPECT_NEAR(sum, 1.0, 1e-12);
      EXPECT_GE(layer.imbalance(), 1.0);
      EXPECT_GT(layer.balance, 1.0) << "k times its least value, where choices and probabilities agree";
      EXPECT_LT(layer.balance, 4.0);
    }
    shares.push_back(layers[2].share);
    load.reset();
    EXPECT_TRUE(load.read().empty());
  }
  EXPECT_EQ(shares[0], shares[1]);
  EXPECT_EQ(shares[0], shares[2]);
}

}  // namespace
}  // namespace quench::nn
