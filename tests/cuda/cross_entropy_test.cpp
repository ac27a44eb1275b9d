#include "core/ops/loss/cross_entropy.h"

#include "core/ops/elementwise.h"
#include "core/ops/quantize/quantize.h"
#include "tests/cuda/quantize/quant_outputs_testing.h"

namespace quench::testing {
namespace {

struct Result {
  Tensor losses, dlogits;
};

Result on_gpu_with(const Tensor& logits, const Tensor& labels, DType gradient, float scale) {
  const Result result{poisoned({logits.size(0)}, DType::f32), poisoned(logits.shape(), gradient)};
  cross_entropy({.logits = on_gpu(logits),
                 .labels = on_gpu(labels),
                 .losses = result.losses,
                 .dlogits = result.dlogits,
                 .grad_scale = scale});
  return result;
}

void compare(std::uint32_t seed, std::int64_t n, std::int64_t vocab, DType dtype, DType gradient, double spread) {
  SCOPED_TRACE(
      fmt::format("{} {} rows {} vocab {} spread {}", to_string(dtype), to_string(gradient), n, vocab, spread));
  Generator random(seed);
  const Tensor logits = random.normal({n, vocab}, dtype, spread), labels = random.integers(n, vocab);
  for (std::int64_t i = 0; n > 1 && i < n; i += i % 14 == 0 ? 3 : 11) labels.data<std::int32_t>()[i] = kIgnoreLabel;
  labels.data<std::int32_t>()[n - 1] = static_cast<std::int32_t>(vocab - 1);
  const Tensor losses = Tensor::empty({n}, DType::f32), dlogits = Tensor::empty({n, vocab}, gradient);
  const float scale = 1.0f / static_cast<float>(n);
  cross_entropy({.logits = logits, .labels = labels, .losses = losses, .dlogits = dlogits, .grad_scale = scale});
  const Result first = on_gpu_with(logits, labels, gradient, scale);
  EXPECT_TRUE(matches(first.losses, losses, 2e-6, 2e-6));
  EXPECT_TRUE(matches(first.dlogits, dlogits, (gradient == DType::bf16 ? one_step(gradient) : 0) + 4e-6, 4e-7 * scale));
  EXPECT_TRUE(wrote_all_and_only(first.dlogits));
  const Result second = on_gpu_with(logits, labels, gradient, scale);
  EXPECT_TRUE(same_bits(on_cpu(first.losses), on_cpu(second.losses)));
  EXPECT_TRUE(same_bits(on_cpu(first.dlogits), on_cpu(second.dlogits)));
  const Tensor again = poisoned({n}, DType::f32), gpu_labels = on_gpu(labels), in_place = on_gpu(logits);
  cross_entropy({.logits = in_place, .labels = gpu_labels, .losses = again});
  EXPECT_TRUE(same_bits(on_cpu(again), on_cpu(first.losses)));
  if (dtype != gradient) return;
  cross_entropy({.logits = in_place, .labels = gpu_labels, .losses = again, .dlogits = in_place, .grad_scale = scale});
  EXPECT_TRUE(same_bits(on_cpu(in_place), on_cpu(first.dlogits)));
  EXPECT_TRUE(same_bits(on_cpu(again), on_cpu(first.losses)));
}

TEST(CudaCrossEntropy, MatchesTheCpu) {
  std::uint32_t seed = 1;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const DType gradient : {DType::f32, DType::bf16})
      // One block a row and clusters of two, four and eight; rows that are not aligned.
      for (const std::int64_t vocab : {1, 2, 15, 65, 160, 1003, 1000, 16384, 16392, 32000, 50257, 50264})
        for (const double spread : {1.0, 30.0})
          compare(++seed, vocab > 2000 ? 3 : 1 + vocab % 40, vocab, dtype, gradient, spread);
}

TEST(CudaCrossEntropy, LargeVocabularies) {
  std::uint32_t seed = 200;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t vocab : {128256, 152064, 151937, 400000}) compare(++seed, 3, vocab, dtype, dtype, 2.0);
  compare(++seed, 3, 128256, DType::f32, DType::bf16, 2.0);
}

// Clusters of two, four and eight, with the fewest and the most pieces a thread, and what is just beyond.
TEST(CudaCrossEntropy, LongRowsOfBf16) {
  std::uint32_t seed = 250;
  for (const std::int64_t vocab : {32776, 40960, 40968, 49152, 49160, 65536, 98304, 98312, 131080, 196608, 196616})
    for (const DType gradient : {DType::bf16, DType::f32}) compare(++seed, 3, vocab, DType::bf16, gradient, 3.0);
}

// More rows than clusters are resident.
TEST(CudaCrossEntropy, ManyRows) {
  compare(300, 700, 1024, DType::f32, DType::bf16, 1.0);
  compare(301, 130, 32768, DType::bf16, DType::bf16, 1.0);
  compare(302, 150, 32776, DType::bf16, DType::bf16, 1.0);
  compare(303, 77, 49160, DType::bf16, DType::bf16, 1.0);
  compare(304, 70, 98312, DType::bf16, DType::bf16, 1.0);
}

TEST(CudaCrossEntropy, CodesMatchRoundedGradients) {
  std::uint32_t seed = 350;
  for (const DType dtype : {DType::f32, DType::bf16})
    // One block a row, unaligned rows, clusters, streamed rows.
    for (const std::int64_t vocab : {1, 15, 65, 160, 1003, 16384, 50257, 50264, 128256}) {
      SCOPED_TRACE(fmt::format("{} vocab {}", to_string(dtype), vocab));
      constexpr std::int64_t kRows = 34;
      Generator random(++seed);
      const Tensor logits = on_gpu(random.normal({kRows, vocab}, dtype, 3.0)), labels = random.integers(kRows, vocab);
      labels.data<std::int32_t>()[5] = kIgnoreLabel;
      const Tensor gpu_labels = on_gpu(labels);
      const float grad_scale = 1.0f / 34;
      const Tensor bound = Tensor::empty({}, DType::f32);
      bound.data<float>()[0] = grad_scale;
      const Tensor scale = float8_scale(on_gpu(bound), ElementFormat::e5m2, false);
      const Tensor losses = poisoned({kRows}, DType::f32), dlogits = poisoned(logits.shape(), DType::bf16);
      const QuantTensor codes(code_format(ElementFormat::e5m2, Granularity::tensor), logits.shape(), DType::bf16,
                              poison(logits.shape(), DType::f8_e5m2), scale);
      cross_entropy(
          {.logits = logits, .labels = gpu_labels, .losses = losses, .grad_scale = grad_scale, .codes = codes});
      const Tensor again = poisoned({kRows}, DType::f32);
      cross_entropy(
          {.logits = logits, .labels = gpu_labels, .losses = again, .dlogits = dlogits, .grad_scale = grad_scale});
      EXPECT_TRUE(same_bits(on_cpu(losses), on_cpu(again)));
      const QuantTensor expected = cast_float8(dlogits, scale, ElementFormat::e5m2, Granularity::tensor);
      EXPECT_TRUE(same(codes.payload(), expected.payload()));
    }
}

TEST(CudaCrossEntropy, BitsOfARowDoNotDependOnTheOthers) {
  constexpr std::int64_t kRows = 90, kVocab = 50264;
  Generator random(310);
  const Tensor logits = random.normal({kRows, kVocab}, DType::bf16, 2.0), labels = random.integers(kRows, kVocab);
  const Result all = on_gpu_with(logits, labels, DType::bf16, 1.0f);
  for (const std::int64_t row : {0, 1, 65, 66, 89}) {
    const Result alone = on_gpu_with(logits.narrow(0, row, 1), labels.narrow(0, row, 1), DType::bf16, 1.0f);
    EXPECT_TRUE(same_bits(on_cpu(alone.losses), on_cpu(all.losses.narrow(0, row, 1)))) << row;
    EXPECT_TRUE(same_bits(on_cpu(alone.dlogits), on_cpu(all.dlogits.narrow(0, row, 1)))) << row;
  }
}

TEST(CudaCrossEntropy, InfiniteAndNanLogits) {
  for (const auto& [vocab, dtype] :  // one block a row, unaligned rows, a cluster, a cluster that takes rows in turn
       {std::pair{std::int64_t{20}, DType::f32}, std::pair{std::int64_t{21}, DType::f32},
        std::pair{std::int64_t{20000}, DType::f32}, std::pair{std::int64_t{40000}, DType::bf16}}) {
    SCOPED_TRACE(vocab);
    const Tensor logits = Tensor::zeros({6, vocab}, DType::f32), labels = Tensor::zeros({6}, DType::i32);
    float* x = logits.data<float>();
    x[0 * vocab + 3] = -INFINITY;  // masked token: no probability
    x[1 * vocab + 0] = -INFINITY;  // the label itself is impossible
    x[2 * vocab + 5] = INFINITY;
    x[3 * vocab + 17] = NAN;
    std::fill(x + 4 * vocab, x + 5 * vocab, -INFINITY);
    std::fill(x + 5 * vocab, x + 6 * vocab, -INFINITY);  // all but one masked: most threads see no number
    x[5 * vocab] = -1000.0f;
    const Tensor stored = Tensor::empty(logits.shape(), dtype);
    cast({logits, stored});
    const Result result = on_gpu_with(stored, labels, DType::f32, 1.0f);
    const Tensor losses = on_cpu(result.losses), dlogits = on_cpu(result.dlogits);
    const float* loss = losses.data<float>();
    const float* g = dlogits.data<float>();
    EXPECT_NEAR(loss[0], std::log(static_cast<float>(vocab - 1)), 1e-5f);
    EXPECT_EQ(g[3], 0.0f);
    EXPECT_EQ(loss[1], INFINITY);
    EXPECT_EQ(g[vocab], -1.0f);
    EXPECT_TRUE(std::isnan(loss[2]));
    EXPECT_TRUE(std::isnan(loss[3]));
    EXPECT_TRUE(std::isnan(loss[4]));
    for (std::int64_t i = 2 * vocab; i < 5 * vocab; ++i) EXPECT_TRUE(std::isnan(g[i])) << i;
    EXPECT_EQ(loss[5], 0.0f);
    for (std::int64_t i = 5 * vocab; i < 6 * vocab; ++i) EXPECT_EQ(g[i], 0.0f) << i;
  }
}

TEST(CudaCrossEntropy, LargeLogitsDoNotOverflow) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor logits = Tensor::empty({1, 8}, dtype), labels = Tensor::zeros({1}, DType::i32);
    fill(logits, 3e38);
    EXPECT_NEAR(get_element(on_cpu(on_gpu_with(logits, labels, dtype, 1.0f).losses), 0), std::log(8.0), 1e-6);
  }
}

// The host cannot see labels on the GPU: a bad one makes the row NaN, which stops the run, and its neighbours stay.
TEST(CudaCrossEntropy, LabelsOutsideTheVocabularyGiveNan) {
  for (const std::int64_t vocab : {64, 65, 32000, 40000}) {
    SCOPED_TRACE(vocab);
    Generator random(9);
    const Tensor logits = random.normal({5, vocab}, vocab == 40000 ? DType::bf16 : DType::f32),
                 labels = Tensor::zeros({5}, DType::i32);
    const std::int32_t bad[] = {-1, static_cast<std::int32_t>(vocab), 0, 0x7FFFFFFF,
                                static_cast<std::int32_t>(0x80000000)};
    std::copy(std::begin(bad), std::end(bad), labels.data<std::int32_t>());
    const Result result = on_gpu_with(logits, labels, DType::f32, 1.0f);
    const std::vector<double> losses = values(on_cpu(result.losses)), gradients = values(on_cpu(result.dlogits));
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(std::isnan(losses[i]), i != 2) << i;
    for (std::size_t i = 0; i < gradients.size(); ++i)
      EXPECT_EQ(std::isnan(gradients[i]), i / static_cast<std::size_t>(vocab) != 2) << i;
  }
}

TEST(CudaCrossEntropy, EmptyInputs) {
  cross_entropy({.logits = Tensor::empty({0, 4}, DType::f32, kGpu),
                 .labels = Tensor::empty({0}, DType::i32, kGpu),
                 .losses = Tensor::empty({0}, DType::f32, kGpu)});
}

}  // namespace
}  // namespace quench::testing
