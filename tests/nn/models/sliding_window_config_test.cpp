// use_sliding_window of the Qwen families, as their configuration classes in Transformers read it.

#include <gmock/gmock.h>

#include "tests/nn/spec/config_testing.h"

namespace quench::nn {
namespace {

using testing::fault_of;
using ::testing::HasSubstr;
using testing::parsed;

Json qwen(const char* type, const char* members = "{}") {
  Json json = Json::parse(R"({"vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256})");
  json.set("model_type", type);
  const Json parsed_members = Json::parse(members);
  for (const auto& [key, value] : parsed_members.as_object()) json.set(key, value);
  return json;
}

std::vector<std::int64_t> windows(const Json& json) {
  const ModelConfig c = parsed(json);
  std::vector<std::int64_t> sizes;
  for (std::int64_t layer = 0; layer < c.num_hidden_layers; ++layer) sizes.push_back(c.block(layer).attention.window);
  return sizes;
}

using Windows = std::vector<std::int64_t>;

TEST(SlidingWindowConfig, LayersFromMaxWindowLayersOnHaveTheWindow) {
  for (const char* type : {"qwen2", "qwen3"}) {
    EXPECT_EQ(windows(qwen(type, R"({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 1})")),
              (Windows{0, 8, 8}));
    EXPECT_EQ(windows(qwen(type, R"({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 0})")),
              (Windows{8, 8, 8}));
    EXPECT_EQ(windows(qwen(type, R"({"use_sliding_window": true, "sliding_window": 8})")), (Windows{0, 0, 0}))
        << "max_window_layers is 28 by default";
    EXPECT_EQ(windows(qwen(type, R"({"use_sliding_window": true, "max_window_layers": 2})")), (Windows{0, 0, 4096}));
    EXPECT_EQ(windows(qwen(type, R"({"use_sliding_window": true, "sliding_window": null, "max_window_layers": 0})")),
              (Windows{0, 0, 0}));
    EXPECT_EQ(windows(qwen(type, R"({"use_sliding_window": false, "sliding_window": 8, "max_window_layers": 0})")),
              (Windows{0, 0, 0}));
  }
}

TEST(SlidingWindowConfig, LayerTypesNameTheLayersWithTheWindow) {
  EXPECT_EQ(windows(qwen("qwen2", R"({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 3,
                                      "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]})")),
            (Windows{8, 0, 8}));
  EXPECT_THAT(fault_of(qwen("qwen2", R"({"layer_types": ["sliding_attention", "full_attention", "full_attention"]})")),
              HasSubstr("layer_types: layer 0 is of type sliding_attention, which needs use_sliding_window: true"));
  EXPECT_THAT(fault_of(qwen("qwen3", R"({"layer_types": ["full_attention"]})")),
              HasSubstr("layer_types: expected a list of 3 names"));
  EXPECT_THAT(
      fault_of(qwen("qwen3", R"({"layer_types": ["full_attention", "full_attention", "linear_attention"]})")),
      HasSubstr("layer_types: \"linear_attention\" is not supported; known: full_attention, sliding_attention"));
}

TEST(SlidingWindowConfig, Qwen3MoeWindowsAllLayers) {
  EXPECT_EQ(windows(qwen("qwen3_moe", R"({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 2})")),
            (Windows{8, 8, 8}));
  EXPECT_EQ(windows(qwen("qwen3_moe", R"({"sliding_window": 8})")), (Windows{0, 0, 0}));
}

TEST(SlidingWindowConfig, WrittenConfigsKeepIt) {
  for (const char* members : {R"({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 1})",
                              R"({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 0})"}) {
    for (const char* type : {"qwen2", "qwen3", "qwen3_moe"}) {
      const Json json = qwen(type, members);
      EXPECT_EQ(windows(to_hf_json(parsed(json), DType::f32)), windows(json)) << type << members;
    }
  }
}

TEST(SlidingWindowConfig, FlopsCountTheWindowOfEachLayer) {
  const auto flops = [](const char* members) { return parsed(qwen("qwen2", members)).training_flops_per_token(128); };
  const double none = flops("{}");
  const double one = flops(R"({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 2})");
  const double all = flops(R"({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 0})");
  EXPECT_LT(one, none);
  EXPECT_NEAR(none - all, 3 * (none - one), 1e-6 * none);
}

}  // namespace
}  // namespace quench::nn
