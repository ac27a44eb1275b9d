#include "core/ops/loss/cross_entropy.h"

#include "core/memory/allocator.h"
#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

struct CrossEntropyReference {
  std::vector<double> losses, gradients;
};

CrossEntropyReference reference(const Tensor& logits, const Tensor& labels, double scale) {
  const auto x = values(logits);
  const auto n = static_cast<std::size_t>(logits.size(0)), vocab = static_cast<std::size_t>(logits.size(1));
  CrossEntropyReference result{std::vector<double>(n), std::vector<double>(n * vocab)};
  for (std::size_t i = 0; i < n; ++i) {
    const std::int32_t label = labels.data<std::int32_t>()[i];
    if (label == kIgnoreLabel) continue;
    double best = -INFINITY, sum = 0;
    for (std::size_t j = 0; j < vocab; ++j) best = std::max(best, x[i * vocab + j]);
    for (std::size_t j = 0; j < vocab; ++j) sum += std::exp(x[i * vocab + j] - best);
    result.losses[i] = std::log(sum) + best - x[i * vocab + static_cast<std::size_t>(label)];
    for (std::size_t j = 0; j < vocab; ++j)
      result.gradients[i * vocab + j] =
          scale * (std::exp(x[i * vocab + j] - best) / sum - (j == static_cast<std::size_t>(label) ? 1.0 : 0.0));
  }
  return result;
}

TEST(CrossEntropy, LossAndGradientMatchTheFormula) {
  std::uint32_t seed = 1;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const DType gradient : {DType::f32, DType::bf16})
      for (const std::int64_t vocab : {1, 2, 15, 65, 160, 1003})
        for (const double spread : {1.0, 30.0}) {
          SCOPED_TRACE(fmt::format("{} {} vocab {} spread {}", to_string(dtype), to_string(gradient), vocab, spread));
          Generator random(++seed);
          const std::int64_t n = random.between(1, 40);
          const Tensor logits = random.normal({n, vocab}, dtype, spread), labels = random.integers(n, vocab);
          labels.data<std::int32_t>()[0] = kIgnoreLabel;
          const Tensor losses = Tensor::empty({n}, DType::f32), dlogits = Tensor::empty({n, vocab}, gradient);
          const float scale = 1.0f / static_cast<float>(n);
          const CrossEntropyReference expected = reference(logits, labels, scale);
          cross_entropy(
              {.logits = logits, .labels = labels, .losses = losses, .dlogits = dlogits, .grad_scale = scale});
          EXPECT_TRUE(close(losses, expected.losses, 1e-6, 1e-6));
          EXPECT_TRUE(close(dlogits, expected.gradients, rounding(gradient) * 1.01 + 1e-6, 2e-7 * scale));
          const Tensor again = Tensor::empty({n}, DType::f32);
          cross_entropy({.logits = logits, .labels = labels, .losses = again});
          EXPECT_TRUE(same_bits(losses, again));
          if (dtype == gradient) {
            const Tensor in_place = logits.clone();
            cross_entropy(
                {.logits = in_place, .labels = labels, .losses = again, .dlogits = in_place, .grad_scale = scale});
            EXPECT_TRUE(same_bits(in_place, dlogits));
            EXPECT_TRUE(same_bits(losses, again));
          }
        }
}

TEST(CrossEntropy, InfiniteAndNaNLogits) {
  const Tensor logits = Tensor::zeros({5, 20}, DType::f32), labels = Tensor::zeros({5}, DType::i32),
               losses = Tensor::empty({5}, DType::f32), dlogits = Tensor::empty({5, 20}, DType::f32);
  float* x = logits.data<float>();
  x[0 * 20 + 3] = -INFINITY;  // masked token: no probability
  x[1 * 20 + 0] = -INFINITY;  // the label itself is impossible
  x[2 * 20 + 5] = INFINITY;
  x[3 * 20 + 17] = NAN;
  std::fill(x + 80, x + 100, -INFINITY);
  cross_entropy({.logits = logits, .labels = labels, .losses = losses, .dlogits = dlogits});
  const float* loss = losses.data<float>();
  const float* g = dlogits.data<float>();
  EXPECT_NEAR(loss[0], std::log(19.0f), 1e-6f);
  EXPECT_EQ(g[3], 0.0f);
  EXPECT_EQ(loss[1], INFINITY);
  EXPECT_EQ(g[20], -1.0f);
  EXPECT_TRUE(std::isnan(loss[2]));
  EXPECT_TRUE(std::isnan(loss[3]));
  EXPECT_TRUE(std::isnan(g[60]));
  EXPECT_TRUE(std::isnan(loss[4]));
}

TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
  const Tensor logits = Tensor::zeros({1, 4}, DType::f32), labels = Tensor::zeros({1}, DType::i32),
               losses = Tensor::empty({1}, DType::f32);
  for (int i = 0; i < 4; ++i) logits.data<float>()[i] = 3e38f;
  cross_entropy({.logits = logits, .labels = labels, .losses = losses});
  EXPECT_NEAR(get_element(losses, 0), std::log(4.0), 1e-6);
}

TEST(CrossEntropy, BitsDoNotDependOnTheThreadCount) {
  Generator random(4);
  const Tensor logits = random.normal({60, 1000}, DType::bf16), labels = random.integers(60, 1000),
               losses = Tensor::empty({60}, DType::f32), dlogits = Tensor::empty({60, 1000}, DType::bf16);
  EXPECT_TRUE(independent_of_threads({losses, dlogits}, [&] {
    cross_entropy({.logits = logits, .labels = labels, .losses = losses, .dlogits = dlogits, .grad_scale = 0.1f});
  }));
}

// The CPU casts a gradient in bf16, which the GPU's kernel does not store.
TEST(CrossEntropy, PlansCountTheGradientThatTheDeviceStores) {
  constexpr Device plan_device{DeviceType::meta, 0};
  constexpr std::int64_t kRows = 64, kVocab = 4096;
  const Shape shape{kRows, kVocab};
  const auto peak = [&](DeviceType planned_for) {
    const auto empty = [](const Shape& of, DType dtype) { return Tensor::empty(of, dtype, plan_device); };
    Allocator& plan = Allocator::of(plan_device);
    const CrossEntropyArgs args{.logits = empty(shape, DType::bf16),
                                .labels = empty({kRows}, DType::i32),
                                .losses = empty({kRows}, DType::f32),
                                .codes = {code_format(ElementFormat::e5m2, Granularity::tensor), shape, DType::bf16,
                                          empty(shape, payload_dtype(ElementFormat::e5m2)), empty({}, DType::f32)},
                                .planned_for = planned_for};
    plan.reset_peak();
    const std::int64_t before = plan.stats().peak;
    cross_entropy(args);
    const MemoryStats stats = plan.stats();
    EXPECT_EQ(stats.peak_by_part[static_cast<std::size_t>(MemoryCategory::other)]
                                [static_cast<std::size_t>(MemoryPart::logits)],
              stats.peak - before);
    return stats.peak - before;
  };
  EXPECT_EQ(peak(DeviceType::cuda), 0);
  EXPECT_EQ(peak(DeviceType::cpu), kRows * kVocab * 2);
}

TEST(CrossEntropy, NamesTheBadLabel) {
  const Tensor logits = Tensor::zeros({3, 4}, DType::f32), labels = Tensor::zeros({3}, DType::i32),
               losses = Tensor::empty({3}, DType::f32);
  for (const std::int32_t bad : {4, -1, -101}) {
    labels.data<std::int32_t>()[1] = bad;
    try {
      cross_entropy({.logits = logits, .labels = labels, .losses = losses});
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(fmt::format("label {} of row 1", bad)), std::string::npos)
          << error.what();
    }
  }
  EXPECT_THROW(cross_entropy({.logits = logits,
                              .labels = Tensor::zeros({3}, DType::i32),
                              .losses = losses,
                              .dlogits = Tensor::zeros({3, 5}, DType::f32)}),
               Error);
  cross_entropy({.logits = Tensor::zeros({0, 4}, DType::f32),
                 .labels = Tensor::zeros({0}, DType::i32),
                 .losses = Tensor::zeros({0}, DType::f32)});
}

}  // namespace
}  // namespace quench
