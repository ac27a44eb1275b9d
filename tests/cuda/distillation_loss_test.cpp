#include "core/ops/loss/distillation_loss.h"

#include "core/ops/loss/cross_entropy.h"
#include "core/ops/loss/hidden_loss.h"
#include "core/ops/loss/top_k_log_probs.h"
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
    args.target.logits = place(teacher);
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

TopKLogProbsArgs keep_top(const Tensor& logits, std::int64_t k, float temperature, bool on_device) {
  const std::int64_t n = logits.size(0);
  const auto out = [&](const Shape& shape, DType type) {
    return on_device ? poisoned(shape, type) : Tensor::empty(shape, type);
  };
  const TopKLogProbsArgs args{.logits = on_device ? on_gpu(logits) : logits,
                              .ids = out({n, k}, DType::i32),
                              .log_probs = out({n, k}, DType::f32),
                              .tail = out({n}, DType::f32),
                              .temperature = temperature};
  top_k_log_probs(args);
  return args;
}

void compare_kept(std::uint32_t seed, std::int64_t n, std::int64_t vocab, std::int64_t k, DType dtype, DType gradient,
                  const DistillationLossArgs& mix) {
  SCOPED_TRACE(fmt::format("{} {} rows {} vocab {} k {} divergence {} temperature {}", to_string(dtype),
                           to_string(gradient), n, vocab, k, static_cast<int>(mix.divergence), mix.temperature));
  Generator random(seed);
  const Tensor logits = random.normal({n, vocab}, dtype, 3), teacher = random.normal({n, vocab}, dtype, 3),
               labels = random.integers(n, vocab);
  if (n > 1) labels.data<std::int32_t>()[1] = kIgnoreLabel;
  const TopKLogProbsArgs kept = keep_top(teacher, k, mix.temperature, false),
                         on_device = keep_top(teacher, k, mix.temperature, true);
  EXPECT_TRUE(same_bits(on_cpu(on_device.ids), kept.ids));
  EXPECT_TRUE(matches(on_device.log_probs, kept.log_probs, 2e-6, 4e-6));
  EXPECT_TRUE(matches(on_device.tail, kept.tail, 2e-6, 4e-6));
  const float scale = 1.0f / static_cast<float>(n);
  const auto run = [&](bool gpu, bool in_place) {
    DistillationLossArgs args = mix;
    const auto place = [&](const Tensor& tensor) { return gpu ? on_gpu(tensor) : tensor; };
    const auto out = [&](const Shape& shape, DType type) {
      return gpu ? poisoned(shape, type) : Tensor::empty(shape, type);
    };
    args.logits = place(logits);
    args.target.ids = place(kept.ids);
    args.target.log_probs = place(kept.log_probs);
    args.target.tail = place(kept.tail);
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

TEST(CudaTopKDistillation, MatchesTheCpu) {
  std::uint32_t seed = 1;
  for (const Divergence divergence : {Divergence::forward_kl, Divergence::reverse_kl, Divergence::jensen_shannon})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const std::int64_t vocab : {1, 15, 160, 1003, 16384})
        for (const std::int64_t k : {std::int64_t{1}, std::int64_t{13}, std::int64_t{700}, vocab}) {
          if (k > vocab) continue;
          for (const float temperature : {1.0f, 2.0f})
            compare_kept(++seed, vocab > 2000 ? 3 : 17, vocab, k, dtype, temperature == 1 ? dtype : DType::f32,
                         {.divergence = divergence,
                          .temperature = temperature,
                          .beta = 0.3f,
                          .cross_entropy_weight = temperature == 1 ? 0.0f : 0.4f,
                          .divergence_weight = 0.6f});
        }
}

TEST(CudaTopKDistillation, LargeVocabulariesAndManyRows) {
  for (const std::int64_t vocab : {128256, 151937, 262144})
    compare_kept(90, 3, vocab, 64, DType::bf16, DType::bf16, {.cross_entropy_weight = 0.5f});
  compare_kept(91, 1500, 512, 64, DType::bf16, DType::bf16, {.divergence = Divergence::reverse_kl});
}

// bf16 logits have many ties.
TEST(CudaTopKDistillation, EqualLogitsKeepTheLowestIds) {
  const Tensor logits = Tensor::zeros({2, 2000}, DType::bf16);
  logits.data<bfloat16>()[1500] = bfloat16(1.0f);
  EXPECT_TRUE(same_bits(on_cpu(keep_top(logits, 700, 1, true).ids), keep_top(logits, 700, 1, false).ids));
}

void compare_hidden(std::uint32_t seed, std::int64_t n, std::int64_t width, DType dtype, HiddenDistance distance) {
  SCOPED_TRACE(fmt::format("{} rows {} width {} distance {}", to_string(dtype), n, width, static_cast<int>(distance)));
  Generator random(seed);
  const Tensor student = random.normal({n, width}, dtype, 2), teacher = random.normal({n, width}, dtype, 3),
               labels = random.integers(n, 100);
  if (n > 1) labels.data<std::int32_t>()[1] = kIgnoreLabel;
  const float scale = 1.0f / static_cast<float>(n);
  const auto run = [&](bool on_device, bool in_place) {
    HiddenLossArgs args{.distance = distance, .grad_scale = scale};
    const auto place = [&](const Tensor& tensor) { return on_device ? on_gpu(tensor) : tensor; };
    const auto out = [&](const Shape& shape, DType type) {
      return on_device ? poisoned(shape, type) : Tensor::empty(shape, type);
    };
    args.student = place(student);
    args.teacher = place(teacher);
    args.labels = place(labels);
    args.losses = out({n}, DType::f32);
    args.dstudent = in_place ? args.teacher : out({n, width}, dtype);
    hidden_loss(args);
    return args;
  };
  const HiddenLossArgs expected = run(false, false), first = run(true, false), second = run(true, false);
  EXPECT_TRUE(matches(first.losses, expected.losses, 4e-6, 2e-6));
  EXPECT_TRUE(
      matches(first.dstudent, expected.dstudent, (dtype == DType::bf16 ? one_step(dtype) : 0) + 1e-5, 2e-6 * scale));
  EXPECT_TRUE(same_bits(on_cpu(first.losses), on_cpu(second.losses)));
  EXPECT_TRUE(same_bits(on_cpu(first.dstudent), on_cpu(second.dstudent)));
  EXPECT_TRUE(same_bits(on_cpu(run(true, true).dstudent), on_cpu(first.dstudent)));
}

TEST(CudaHiddenLoss, MatchesTheCpu) {
  std::uint32_t seed = 1;
  for (const HiddenDistance distance : {HiddenDistance::mse, HiddenDistance::cosine, HiddenDistance::normalized_mse})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const std::int64_t width : {1, 15, 160, 1003, 4096, 8192})
        compare_hidden(++seed, width > 2000 ? 3 : 17, width, dtype, distance);
  compare_hidden(90, 3000, 512, DType::bf16, HiddenDistance::cosine);
}

}  // namespace
}  // namespace quench::testing
