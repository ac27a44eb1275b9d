// The decoder against Hugging Face Transformers: logits, loss, gradients, AdamW steps and greedy text of tiny random
// checkpoints, in f32.

#include <cstring>

#include "tests/train/model_folder/golden_model.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using testing::GoldenModel;

class ModelGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(ModelGolden, Logits) {
  EXPECT_LT(GoldenModel(GetParam(), Device{}).logits_error(), 1e-5);
}

TEST_P(ModelGolden, LossAndEveryGradient) {
  GoldenModel golden(GetParam(), Device{});
  for (const auto level : {autograd::Recompute::none, autograd::Recompute::selective, autograd::Recompute::full}) {
    for (nn::Parameter* p : golden.model.parameters()) p->variable.gradient()->reset();
    EXPECT_NEAR(golden.loss_and_gradients(level), testing::read_f32(golden.reference, "loss")[0], 1e-6);
    golden.expect_gradients(1e-4);
  }
}

TEST_P(ModelGolden, EightAdamWSteps) {
  GoldenModel(GetParam(), Device{}).expect_adamw_losses(1e-5);
}

TEST_P(ModelGolden, GreedyTokensThroughTheKeyValueCache) {
  GoldenModel(GetParam(), Device{}).expect_greedy_tokens();
}

TEST_P(ModelGolden, SavedFolderLoadsToTheSameBits) {
  GoldenModel golden(GetParam(), Device{});
  const testing::TempDir temp;
  save_model_folder(golden.model, {temp / "copy"},
                    {.dtype = DType::f32, .max_shard_bytes = 40'000, .small_files = {.model = golden.folder}});
  EXPECT_TRUE(fs::exists(temp / "copy" / "model.safetensors.index.json"));
  nn::CausalLm copy(read_model_config(temp / "copy"), nn::ParameterOptions{});
  load_weights(copy, temp / "copy");
  const auto a = golden.model.parameters(), b = copy.parameters();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Tensor x = a[i]->variable.value(), y = b[i]->variable.value();
    EXPECT_EQ(0, std::memcmp(x.raw_data(), y.raw_data(), x.nbytes())) << a[i]->name;
  }
  const Json config = Json::parse_file(temp / "copy" / "config.json");
  EXPECT_NE(config.find("rope_theta"), nullptr) << "for readers before Transformers 5";
  EXPECT_NE(config.find("rope_parameters"), nullptr) << "for Transformers 5";
}

INSTANTIATE_TEST_SUITE_P(Families, ModelGolden,
                         ::testing::Values("llama", "llama31_tied", "qwen2", "qwen3", "mixtral", "qwen3_moe"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace quench
