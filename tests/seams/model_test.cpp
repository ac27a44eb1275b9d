// Adding a model family, whose feed-forward part calls an added op: from a config to a trained, exported and reloaded
// model.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "export/formats/gguf/names.h"
#include "export/formats/gguf/writer.h"
#include "tests/seams/added_model.h"
#include "tests/seams/refusal.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/model_folder/model_folder.h"
#include "train/plan/estimate.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::refusal;
using testing::TinyRun;

std::vector<std::string> reglu(std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--model.model_type=reglu", "--model.attention_bias", "--training.steps=20"});
  return more;
}

double loss_of(const std::string& line) {
  return std::stod(line.substr(line.find(':') + 1));
}

TEST(AddedModel, TrainsFromAConfig) {
  const TinyRun tiny;
  tiny.run(tiny.config("kept", reglu()));
  const auto losses = tiny.losses("kept");
  ASSERT_EQ(losses.size(), 20u);
  EXPECT_LT(loss_of(losses.back()), loss_of(losses.front()) - 0.3);
  // Recomputed values are bit-identical.
  tiny.run(tiny.config("again", reglu({"--training.activation_checkpoint=selective"})));
  EXPECT_EQ(tiny.losses("again"), losses);
  // Another function than Llama's.
  tiny.run(tiny.config("llama", {"--training.steps=20", "--model.attention_bias"}));
  EXPECT_NE(tiny.losses("llama"), losses);
  EXPECT_GT(estimate_run(ResolvedConfig(tiny.config("plan", reglu())), Device{}).total_bytes, 0);
}

TEST(AddedModel, IsExportedAndReadBack) {
  const TinyRun tiny;
  const std::filesystem::path folder = tiny.folder("run") / "export";
  tiny.run(tiny.config("run", reglu({"--export.format=hf"})));
  const nn::ModelConfig config = read_model_config(folder);
  EXPECT_EQ(config.architecture, "RegluForCausalLM");
  EXPECT_TRUE(config.qkv_bias);
  nn::CausalLm model(config, {});
  EXPECT_NO_THROW(load_weights(model, folder));
  const Tensor ids = Tensor::from_values<std::int32_t>({3}, std::vector<std::int32_t>{1, 8, 43});
  const Tensor logits = model.logits(model.hidden(ids, model.make_context({{0, 3, 0, 3}}, 3)));
  EXPECT_EQ(logits.shape(), Shape({3, 64}));
  EXPECT_TRUE(std::isfinite(logits.data<float>()[0]));
}

TEST(AddedModel, HasAGgufPartByItsOwnEntry) {
  const auto config_of = [](std::string_view type) {
    return nn::parse_model_config(
        Json::parse(fmt::format(R"({{"model_type": "{}", "vocab_size": 64, "hidden_size": 16, "intermediate_size": 32,
                                     "num_hidden_layers": 2, "num_attention_heads": 2}})",
                                type)),
        "config.json");
  };
  EXPECT_NO_THROW(require_gguf_model(config_of("reglu")));
  EXPECT_THAT(gguf_architecture_names(), HasSubstr("reglu-cpp"));
  const GgufHead head{.metadata = {{"general.architecture", Json("reglu-cpp")}}, .tensors = {}};
  ASSERT_NE(stored_gguf_architecture(head), nullptr);
  EXPECT_EQ(stored_gguf_architecture(head)->model_type, "reglu");
}

TEST(AddedModel, IsNamedInErrors) {
  const TinyRun tiny;
  EXPECT_THAT(refusal([&] { (void)tiny.config("x", {"--model.model_type=regl"}); }), HasSubstr("reglu"));
  EXPECT_THAT(refusal([] {
                (void)nn::parse_model_config(Json::parse(R"({"architectures": ["FalconForCausalLM"]})"), "config.json");
              }),
              HasSubstr("RegluForCausalLM"));
  // A member of config.json that it does not execute.
  EXPECT_THAT(refusal([&] { (void)tiny.config("x", reglu({"--model.sliding_window=4"})); }),
              HasSubstr("sliding_window"));
}

}  // namespace
}  // namespace quench
