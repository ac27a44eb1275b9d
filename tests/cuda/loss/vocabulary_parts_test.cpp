// Cross-entropy and embedding of a vocabulary in parts against the CPU kernels.

#include "core/ops/loss/vocabulary_parts.h"

#include "tests/cuda/fused_testing.h"

namespace quench::testing {
namespace {

const Device kPartsGpu{DeviceType::cuda, 0};

TEST(CudaVocabularyParts, LossesAndGradientsMatchTheCpu) {
  unsigned seed = 1;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const DType gradient : {DType::f32, DType::bf16})
      for (const std::int64_t width : {1, 33, 512, 16032, 64128})
        for (const std::int64_t parts : {1, 2, 8}) {
          SCOPED_TRACE(fmt::format("{} {} {} parts of {}", to_string(dtype), to_string(gradient), parts, width));
          Generator random(++seed);
          const std::int64_t n = width > 10000 ? 5 : 300, part = parts - 1;
          const Tensor logits = random.normal({n, width}, dtype, 3.0), labels = random.integers(n, parts * width);
          labels.data<std::int32_t>()[0] = kIgnoreLabel;
          const auto statistics_on = [&](Device device) {
            const Tensor out = Tensor::empty({n, kLogitsStatistics}, DType::f32, device);
            logits_statistics(
                {.logits = logits.to(device), .labels = labels.to(device), .first = part * width, .statistics = out});
            return out;
          };
          const Tensor own = statistics_on({}), on_gpu = statistics_on(kPartsGpu);
          // Both add the exponentials in f32, each in its order.
          EXPECT_TRUE(matches(on_gpu, own, 2e-6 + 1.5e-10 * static_cast<double>(width), 1e-6));
          // The other parts have the same logits, and no label.
          const Tensor all = Tensor::empty({parts * n, kLogitsStatistics}, DType::f32);
          for (std::int64_t i = 0; i < parts; ++i) {
            all.narrow(0, i * n, n).copy_from(own);
            for (std::int64_t row = i * n; row < (i + 1) * n && i != part; ++row) all.data<float>()[row * 3 + 2] = 0;
          }
          const auto losses_on = [&](Device device, const Tensor& dlogits) {
            const Tensor losses = Tensor::empty({n}, DType::f32, device);
            cross_entropy_part({.logits = logits.to(device),
                                .labels = labels.to(device),
                                .first = part * width,
                                .statistics = all.to(device),
                                .losses = losses,
                                .dlogits = dlogits,
                                .grad_scale = 0.25f});
            return losses;
          };
          const Tensor expected = Tensor::empty({n, width}, gradient),
                       got = Tensor::empty({n, width}, gradient, kPartsGpu);
          EXPECT_TRUE(matches(losses_on(kPartsGpu, got), losses_on({}, expected), 2e-6, 2e-6));
          EXPECT_TRUE(matches(got, expected, gradient == DType::bf16 ? 0.008 : 1e-5, 1e-6));
        }
}

TEST(CudaVocabularyParts, OwnRowsMatchTheCpu) {
  Generator random(3);
  const Tensor ids = random.integers(5000, 1000);
  const auto rows_on = [&](Device device) {
    const Tensor rows = Tensor::empty({5000}, DType::i32, device), factors = Tensor::empty({5000}, DType::f32, device);
    own_rows({.ids = ids.to(device), .first = 250, .count = 250, .rows = rows, .factors = factors});
    return std::pair(rows.to(Device{}), factors.to(Device{}));
  };
  const auto [rows, factors] = rows_on({});
  const auto [gpu_rows, gpu_factors] = rows_on(kPartsGpu);
  EXPECT_TRUE(same_bits(gpu_rows, rows));
  EXPECT_TRUE(same_bits(gpu_factors, factors));
}

}  // namespace
}  // namespace quench::testing
