#include "core/ops/loss/lm_head_loss.h"

#include "core/ops/gemm.h"
#include "core/ops/loss/cross_entropy.h"
#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

struct LossReference {
  std::vector<double> losses, dhidden, dweight;
};

LossReference reference(const Tensor& hidden, const Tensor& weight, const Tensor& labels, double scale) {
  const auto h = values(hidden), w = values(weight);
  const auto n = static_cast<std::size_t>(hidden.size(0)), width = static_cast<std::size_t>(hidden.size(1));
  const auto vocab = static_cast<std::size_t>(weight.size(0));
  LossReference result{std::vector<double>(n), std::vector<double>(h.size()), std::vector<double>(w.size())};
  std::vector<double> p(vocab);
  for (std::size_t i = 0; i < n; ++i) {
    const std::int32_t label = labels.data<std::int32_t>()[i];
    if (label == kIgnoreLabel) continue;
    double sum = 0;
    for (std::size_t j = 0; j < vocab; ++j) {
      double logit = 0;
      for (std::size_t k = 0; k < width; ++k) logit += h[i * width + k] * w[j * width + k];
      if (j == static_cast<std::size_t>(label)) result.losses[i] = -logit;
      sum += p[j] = std::exp(logit);
    }
    result.losses[i] += std::log(sum);
    for (std::size_t j = 0; j < vocab; ++j) {
      const double g = scale * (p[j] / sum - (j == static_cast<std::size_t>(label) ? 1 : 0));
      for (std::size_t k = 0; k < width; ++k) {
        result.dhidden[i * width + k] += g * w[j * width + k];
        result.dweight[j * width + k] += g * h[i * width + k];
      }
    }
  }
  return result;
}

TEST(LmHeadLoss, AnyChunkingGivesTheLossAndBothGradients) {
  std::uint32_t seed = 1;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool wide : {false, true})
      for (const bool accumulate : {false, true})
        for (const std::int64_t chunk : {0, 1, 7, 30, 100}) {
          SCOPED_TRACE(fmt::format("{} wide {} accumulate {} chunk {}", to_string(dtype), wide, accumulate, chunk));
          Generator random(++seed);
          const std::int64_t n = 30, width = 24, vocab = 77;
          const Tensor hidden = random.normal({n, width}, dtype), weight = random.normal({vocab, width}, dtype, 0.3),
                       labels = random.integers(n, vocab);
          labels.data<std::int32_t>()[3] = kIgnoreLabel;
          const Tensor losses = Tensor::empty({n}, DType::f32), dhidden = Tensor::empty({n, width}, dtype);
          const Tensor dweight = random.normal({vocab, width}, wide ? DType::f32 : dtype);
          LossReference expected = reference(hidden, weight, labels, 1.0 / 29);
          const auto old = values(dweight);
          for (std::size_t i = 0; accumulate && i < old.size(); ++i) expected.dweight[i] += old[i];
          lm_head_loss({.hidden = hidden,
                        .weight = weight,
                        .labels = labels,
                        .losses = losses,
                        .grad_scale = 1.0f / 29,
                        .dhidden = dhidden,
                        .dweight = dweight,
                        .accumulate_dweight = accumulate,
                        .options = {.chunk_rows = chunk}});
          EXPECT_TRUE(close(losses, expected.losses, 2e-6, 2e-6));
          // bf16: the gradient of the logits is rounded before the products.
          const double absolute = dtype == DType::bf16 ? 4e-4 : 1e-6;
          EXPECT_TRUE(close(dhidden, expected.dhidden, rounding(dtype) * 1.01, absolute));
          EXPECT_TRUE(close(dweight, expected.dweight, rounding(dweight.dtype()) * 1.01, absolute));
        }
}

// Logits of the operands' dtype: each is rounded once, and dweight once a chunk.
TEST(LmHeadLoss, CompactLogitsStayWithinTheirRoundings) {
  for (const std::int64_t chunk : {0, 7}) {
    SCOPED_TRACE(chunk);
    Generator random(77);
    const std::int64_t n = 30, width = 24, vocab = 77;
    const Tensor hidden = random.normal({n, width}, DType::bf16),
                 weight = random.normal({vocab, width}, DType::bf16, 0.3), labels = random.integers(n, vocab);
    const Tensor losses = Tensor::empty({n}, DType::f32), dhidden = Tensor::empty({n, width}, DType::bf16);
    const Tensor dweight = Tensor::empty({vocab, width}, DType::bf16);
    const LossReference expected = reference(hidden, weight, labels, 1.0 / 30);
    lm_head_loss({.hidden = hidden,
                  .weight = weight,
                  .labels = labels,
                  .losses = losses,
                  .grad_scale = 1.0f / 30,
                  .dhidden = dhidden,
                  .dweight = dweight,
                  .options = {.chunk_rows = chunk, .f32_logits = false}});
    // Logits reach about 5: half an ulp of bf16 there is 2^-7.
    EXPECT_TRUE(close(losses, expected.losses, 0, 0x1.0p-6));
    EXPECT_TRUE(close(dhidden, expected.dhidden, 0.02, 1e-3));
    EXPECT_TRUE(close(dweight, expected.dweight, 0.02, 1e-3));
  }
}

TEST(LmHeadLoss, EvaluationNeedsNoGradients) {
  Generator random(5);
  const Tensor hidden = random.normal({20, 16}, DType::f32), weight = random.normal({50, 16}, DType::f32),
               labels = random.integers(20, 50);
  const Tensor losses = Tensor::empty({20}, DType::f32), only = Tensor::empty({20}, DType::f32),
               dhidden = Tensor::empty({20, 16}, DType::f32);
  lm_head_loss({.hidden = hidden, .weight = weight, .labels = labels, .losses = losses, .options = {.chunk_rows = 6}});
  lm_head_loss({.hidden = hidden,
                .weight = weight,
                .labels = labels,
                .losses = only,
                .dhidden = dhidden,
                .options = {.chunk_rows = 6}});
  EXPECT_TRUE(same_bits(losses, only));
  EXPECT_TRUE(close(losses, reference(hidden, weight, labels, 1).losses, 2e-6, 2e-6));
}

TEST(LmHeadLoss, NoRows) {
  const Tensor weight = Tensor::zeros({5, 4}, DType::f32), dweight = Tensor::empty({5, 4}, DType::f32);
  fill(dweight, 2);
  lm_head_loss({.hidden = Tensor::zeros({0, 4}, DType::f32),
                .weight = weight,
                .labels = Tensor::zeros({0}, DType::i32),
                .losses = Tensor::zeros({0}, DType::f32),
                .dweight = dweight});
  EXPECT_EQ(get_element(dweight, 0), 0);
}

TEST(LmHeadLoss, ChunksStayNearTheirBudget) {
  EXPECT_EQ(default_loss_chunk_rows(10'000'000), 256);
  for (const std::int64_t vocab : {1, 1000, 32000}) {
    const std::int64_t bytes = default_loss_chunk_rows(vocab) * vocab * 4;
    EXPECT_LE(bytes, std::int64_t{64} << 20);
    EXPECT_GE(bytes, std::int64_t{60} << 20);
  }
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  for (const std::int64_t vocab : {32000, 128256, 151936, 202048}) {
    const std::int64_t bytes = default_loss_chunk_rows(vocab, DeviceType::cuda) * vocab * 4;
    EXPECT_LE(bytes, kGiB * 7 / 6);
    EXPECT_GE(bytes, kGiB - vocab * 4);
  }
  EXPECT_EQ(default_loss_chunk_rows(151936, DeviceType::cuda), 2048);
}

TEST(LmHeadLoss, RejectsWhatDoesNotFit) {
  const Tensor hidden = Tensor::zeros({3, 4}, DType::f32), weight = Tensor::zeros({5, 4}, DType::f32),
               labels = Tensor::zeros({3}, DType::i32), losses = Tensor::zeros({3}, DType::f32);
  EXPECT_THROW(
      lm_head_loss({.hidden = hidden, .weight = Tensor::zeros({5, 3}, DType::f32), .labels = labels, .losses = losses}),
      Error);
  EXPECT_THROW(lm_head_loss({.hidden = hidden,
                             .weight = weight,
                             .labels = labels,
                             .losses = losses,
                             .dweight = Tensor::zeros({5, 4}, DType::bf16)}),
               Error);
  EXPECT_THROW(
      lm_head_loss(
          {.hidden = hidden, .weight = weight, .labels = labels, .losses = losses, .options = {.chunk_rows = -1}}),
      Error);
  labels.data<std::int32_t>()[0] = 5;
  EXPECT_THROW(lm_head_loss({.hidden = hidden, .weight = weight, .labels = labels, .losses = losses}), Error);
}

}  // namespace
}  // namespace quench
