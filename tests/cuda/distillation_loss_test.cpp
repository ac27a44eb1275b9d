#include "core/ops/loss/distillation_loss.h"

#include "core/ops/loss/cross_entropy.h"
#include "tests/cuda/fused_testing.h"

namespace quench::testing {
namespace {

void compare_divergence(std::uint32_t seed, std::int64_t n, std::int64_t vocab, DType dtype, DType gradient,
                        const DistillationLossArgs& mix) {
  SCOPED_TRACE(fmt::format("{} {} rows {} vocab {} divergence {} temperature {}", to_string(dtype), to_string(gradient),
                           n, vocab, static_cast<int>(mix.divergence), mix.temperature));
  Generator random(seed);
  const Tensor logits = random.normal({n, vocab}, dtype, 3), teacher = random.normal({n, vocab}, dtype, 3),
               labels = random.integers(n, vocab);
  if (n > 1) labels.data<std::int32_t>()[1] = kIgnoreLabel;
  const float scale = 1.0f / static_cast<float>(n);
  const auto run = [&](bool on_device, bool in_place) {
    DistillationLossArgs args = mix;
    const auto place = [&](const Tensor& tensor) { return on_device ? on_gpu(tensor) : tensor; };
    const auto out = [&](const Shape& shape, DType type) {
      return on_device ? poisoned(shape, type) : Tensor::empty(shape, type);
    };
    args.logits = place(logits);
    args.teacher = place(teacher);
    args.labels = place(labels);
    args.losses = out({n}, DType::f32);
    args.cross_entropies = out({n}, DType::f32);
    args.divergences = out({n}, DType::f32);
    args.dlogits = in_place ? args.logits : out({n, vocab}, gradient);
    args.grad_scale = scale;
    distillation_loss(args);
    return args;
  };
  const DistillationLossArgs expected = run(false, false), first = run(true, false), second = run(true, false);
  EXPECT_TRUE(matches(first.losses, expected.losses, 4e-6, 8e-6));
  EXPECT_TRUE(matches(first.cross_entropies, expected.cross_entropies, 2e-6, 4e-6));
  EXPECT_TRUE(matches(first.divergences, expected.divergences, 4e-6, 8e-6));
  EXPECT_TRUE(matches(first.dlogits, expected.dlogits, (gradient == DType::bf16 ? one_step(gradient) : 0) + 1e-5,
                      2e-6 * scale));
  EXPECT_TRUE(same_bits(on_cpu(first.losses), on_cpu(second.losses)));
  EXPECT_TRUE(same_bits(on_cpu(first.dlogits), on_cpu(second.dlogits)));
  if (dtype != gradient) return;
  EXPECT_TRUE(same_bits(on_cpu(run(true, true).dlogits), on_cpu(first.dlogits)));
}

TEST(CudaDistillationLoss, MatchesTheCpu) {
  std::uint32_t seed = 1;
  for (const Divergence divergence : {Divergence::forward_kl, Divergence::reverse_kl, Divergence::jensen_shannon})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const std::int64_t vocab : {1, 15, 160, 1003, 16384, 50257})
        for (const float temperature : {1.0f, 2.0f})
          compare_divergence(++seed, vocab > 2000 ? 3 : 17, vocab, dtype, temperature == 1 ? dtype : DType::f32,
                             {.divergence = divergence,
                              .temperature = temperature,
                              .beta = 0.3f,
                              .cross_entropy_weight = temperature == 1 ? 0.0f : 0.4f,
                              .divergence_weight = 0.6f});
}

TEST(CudaDistillationLoss, LargeVocabulariesAndManyRows) {
  for (const std::int64_t vocab : {128256, 151937})
    compare_divergence(90, 3, vocab, DType::bf16, DType::bf16, {.cross_entropy_weight = 0.5f});
  compare_divergence(91, 1500, 512, DType::bf16, DType::bf16, {.divergence = Divergence::reverse_kl});
}

}  // namespace
}  // namespace quench::testing
