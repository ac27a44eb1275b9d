// Rescaled rotary embeddings, a sliding window shorter than the sequences, latent attention and experts in groups,
// against Hugging Face Transformers (tests/reference/make_models.py): logits, gradients, AdamW steps and greedy text of
// tiny random checkpoints, in f32, on sequences longer than those of the pretraining.

#include "tests/train/model_folder/golden_model.h"

namespace quench {
namespace {

using testing::GoldenModel;

class ReferenceModelGolden : public ::testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] static std::string folder() { return (testing::reference_dir() / "models" / GetParam()).string(); }
};

TEST_P(ReferenceModelGolden, Logits) {
  EXPECT_LT(GoldenModel(folder(), Device{}).logits_error(), 1e-5);
}

TEST_P(ReferenceModelGolden, LossAndEveryGradient) {
  GoldenModel golden(folder(), Device{});
  for (const auto level : {autograd::Recompute::none, autograd::Recompute::selective, autograd::Recompute::full}) {
    for (nn::Parameter* p : golden.model.parameters())
      if (p->variable.requires_grad()) p->variable.gradient()->reset();
    EXPECT_NEAR(golden.loss_and_gradients(level), testing::read_f32(golden.reference, "loss")[0], 2e-6);
    golden.expect_gradients(1e-4);
  }
}

TEST_P(ReferenceModelGolden, EightAdamWSteps) {
  GoldenModel(folder(), Device{}).expect_adamw_losses(1e-5);
}

TEST_P(ReferenceModelGolden, GreedyTokensThroughTheKeyValueCache) {
  GoldenModel(folder(), Device{}).expect_greedy_tokens();
}

TEST_P(ReferenceModelGolden, AnExportedFolderGivesTheSameLogits) {
  GoldenModel golden(folder(), Device{});
  const testing::TempDir temp;
  save_model_folder(golden.model, {temp / "copy"}, {.dtype = DType::f32, .small_files = {.model = golden.folder}});
  std::filesystem::copy(golden.folder / "reference.safetensors", temp / "copy/reference.safetensors");
  EXPECT_LT(GoldenModel((temp / "copy").string(), Device{}).logits_error(), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Models, ReferenceModelGolden,
                         ::testing::Values("llama_yarn", "llama_dynamic", "mistral", "qwen2_window", "qwen3_moe_window",
                                           "deepseek_v3", "deepseek_v3_halves", "gemma2", "gemma3", "glm4",
                                           "glm4_whole", "gpt_oss", "granite", "llama4", "llama4_mixed", "olmo2",
                                           "phi3", "phi3_long", "phi3_short", "qwen2_moe", "qwen2_moe_step", "smollm3"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace quench
