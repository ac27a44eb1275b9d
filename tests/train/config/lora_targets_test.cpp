// The layers that lora.targets means by default: all projections, whatever a family calls them.

#include <gmock/gmock.h>

#include <set>

#include "config_testing.h"
#include "nn/decoder/causal_lm.h"
#include "train/session/adapter_setup.h"

namespace quench {
namespace {

using ::testing::ElementsAre;
using testing::minimal;

std::set<std::string> chosen_names(const std::string& family, const std::vector<std::string>& overrides) {
  const Json fields = Json::parse(R"({"vocab_size": 48, "hidden_size": 32, "intermediate_size": 16,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, )" +
                                  family + "}");
  nn::CausalLm model(nn::parse_model_config(fields, "config.json"), {.device = Device{DeviceType::meta, 0}});
  std::set<std::string> names;
  for (const recipes::LoraLayer& layer : recipes::lora_layers(model, lora_options(minimal(overrides))))
    names.insert(layer.name.substr(layer.name.rfind('.') + 1));
  return names;
}

TEST(LoraTargets, AreAllProjectionsByDefault) {
  EXPECT_THAT(chosen_names(R"("model_type": "llama")", {"--lora.rank=4"}),
              ElementsAre("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"));
  EXPECT_THAT(
      chosen_names(R"("model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2)", {"--lora.rank=4"}),
      ElementsAre("k_proj", "o_proj", "q_proj", "v_proj", "w1", "w2", "w3"));
  EXPECT_THAT(chosen_names(R"("model_type": "deepseek_v3", "n_routed_experts": 4, "n_group": 1, "topk_group": 1,
                              "num_experts_per_tok": 2, "moe_intermediate_size": 8, "first_k_dense_replace": 1,
                              "kv_lora_rank": 8, "q_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
                              "v_head_dim": 8)",
                           {"--lora.rank=4"}),
              ElementsAre("down_proj", "gate_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj", "q_a_proj", "q_b_proj",
                          "up_proj"));
  EXPECT_THAT(chosen_names(R"("model_type": "phi3")", {"--lora.rank=4"}),
              ElementsAre("down_proj", "gate_up_proj", "o_proj", "qkv_proj"));
  EXPECT_THAT(chosen_names(R"("model_type": "glm4", "head_dim": 8)", {"--lora.rank=4"}),
              ElementsAre("down_proj", "gate_up_proj", "k_proj", "o_proj", "q_proj", "v_proj"));
  EXPECT_THAT(chosen_names(R"("model_type": "llama")", {"--lora.rank=4", "--lora.targets=q_proj,o_proj"}),
              ElementsAre("o_proj", "q_proj"));
}

// PEFT's word, as a string or in a list, means them too.
TEST(LoraTargets, AllLinearMeansTheDefault) {
  const std::string family = R"("model_type": "phi3")";
  const std::set<std::string> all = chosen_names(family, {"--lora.rank=4"});
  EXPECT_EQ(chosen_names(family, {"--lora.rank=4", "--lora.targets=all-linear"}), all);
  EXPECT_EQ(chosen_names(family, {"--lora.rank=4", R"(--lora.targets=["all-linear"])"}), all);
  Json document = Json::parse(testing::kMinimal);
  document.set("lora", Json::parse(R"({"rank": 4, "targets": "all-linear"})"));
  EXPECT_EQ(testing::parse(document.dump()).lora->targets, std::vector<std::string>{"all-linear"});
}

}  // namespace
}  // namespace quench
