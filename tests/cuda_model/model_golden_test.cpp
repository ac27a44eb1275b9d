// The decoder on a GPU against Hugging Face Transformers' f32 results: f32 without TF32, and bf16.

#include "tests/cuda/gpu.h"
#include "tests/train/objective/mtp_golden.h"

namespace quench {
namespace {

using testing::GoldenModel;

using testing::kGpu;

void expect_loss_and_gradients(GoldenModel& golden) {
  for (const auto level : {autograd::Recompute::none, autograd::Recompute::selective, autograd::Recompute::full}) {
    for (nn::Parameter* p : golden.model.parameters())
      if (p->variable.requires_grad()) p->variable.gradient()->reset();
    EXPECT_NEAR(golden.loss_and_gradients(level), testing::read_f32(golden.reference, "loss")[0], 2e-6);
    golden.expect_gradients(1e-4);
  }
}

class CudaModelGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaModelGolden, LogitsInF32) {
  EXPECT_LT(GoldenModel(GetParam(), kGpu).logits_error(), 1e-5);
}

TEST_P(CudaModelGolden, LossAndEveryGradientInF32) {
  GoldenModel golden(GetParam(), kGpu);
  expect_loss_and_gradients(golden);
}

TEST_P(CudaModelGolden, EightAdamWSteps) {
  GoldenModel(GetParam(), kGpu).expect_adamw_losses(1e-5);
}

TEST_P(CudaModelGolden, GreedyTokensThroughTheKeyValueCache) {
  GoldenModel(GetParam(), kGpu).expect_greedy_tokens();
}

INSTANTIATE_TEST_SUITE_P(Families, CudaModelGolden,
                         ::testing::Values("llama", "llama31_tied", "qwen2", "qwen3", "mixtral", "qwen3_moe"),
                         [](const auto& model) { return std::string(model.param); });

// Dense models: where experts are chosen, bf16 may choose others for a token whose best ones are close.
class CudaModelGoldenBf16 : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaModelGoldenBf16, Logits) {
  EXPECT_LT(GoldenModel(GetParam(), kGpu, DType::bf16).logits_error(), 2e-2);
}

TEST_P(CudaModelGoldenBf16, Loss) {
  EXPECT_NEAR(GoldenModel(GetParam(), kGpu, DType::bf16).loss_and_gradients(),
              testing::read_f32(GoldenModel(GetParam(), kGpu).reference, "loss")[0], 1e-2);
}

INSTANTIATE_TEST_SUITE_P(Families, CudaModelGoldenBf16, ::testing::Values("llama", "llama31_tied", "qwen2", "qwen3"),
                         [](const auto& model) { return std::string(model.param); });

// Models of tests/reference/make_models.py.
class CudaReferenceGolden : public ::testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] static std::string folder() { return (testing::reference_dir() / "models" / GetParam()).string(); }
};

TEST_P(CudaReferenceGolden, LogitsGradientsAndGreedyTokens) {
  GoldenModel golden(folder(), kGpu);
  EXPECT_LT(golden.logits_error(), 1e-5);
  expect_loss_and_gradients(golden);
  golden.expect_greedy_tokens();
}

TEST_P(CudaReferenceGolden, EightAdamWSteps) {
  GoldenModel(folder(), kGpu).expect_adamw_losses(1e-5);
}

INSTANTIATE_TEST_SUITE_P(Models, CudaReferenceGolden,
                         ::testing::Values("deepseek_v3", "deepseek_v3_halves", "gemma2", "gemma3", "glm4",
                                           "glm4_whole", "gpt_oss", "granite", "llama4", "llama4_mixed", "olmo2",
                                           "phi3", "phi3_long", "phi3_short", "qwen2_moe", "qwen2_moe_step", "smollm3"),
                         [](const auto& model) { return std::string(model.param); });

// Layers of multi-token prediction, with the bounds of the models above.
TEST(CudaMtpGolden, LogitsLossesAndEveryGradient) {
  testing::MtpGolden golden(kGpu);
  EXPECT_LT(golden.logits_error(), 1e-5) << "the main model";
  golden.expect_depth_logits(1e-5);
  golden.expect_losses_and_gradients(2e-6, 1e-4);
}

}  // namespace
}  // namespace quench
