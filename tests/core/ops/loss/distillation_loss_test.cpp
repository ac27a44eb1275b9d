#include "core/ops/loss/distillation_loss.h"

#include "core/json/json.h"
#include "core/ops/loss/cross_entropy.h"
#include "tests/core/ops/op_testing.h"
#include "tests/reference_numbers.h"
#include "tests/testing.h"

namespace quench {
namespace {

using namespace testing;

struct Mix {
  Divergence divergence;
  double temperature, beta, cross_entropy, weight;
};

constexpr Mix kMixes[] = {
    {Divergence::forward_kl, 1, 0.5, 0, 1},       {Divergence::forward_kl, 2, 0.5, 0.25, 0.75},
    {Divergence::reverse_kl, 1, 0.5, 0, 1},       {Divergence::reverse_kl, 0.7, 0.5, 0.5, 0.5},
    {Divergence::jensen_shannon, 1, 0.5, 0, 1},   {Divergence::jensen_shannon, 3, 0.1, 0.1, 0.9},
    {Divergence::jensen_shannon, 1, 0.9, 0.5, 2},
};

double divergence_of(const std::vector<double>& p, const std::vector<double>& q, const Mix& mix) {
  double sum = 0;
  for (std::size_t j = 0; j < p.size(); ++j) {
    const double m = mix.beta * p[j] + (1 - mix.beta) * q[j];
    switch (mix.divergence) {
      case Divergence::forward_kl: sum += p[j] > 0 ? p[j] * std::log(p[j] / q[j]) : 0; break;
      case Divergence::reverse_kl: sum += q[j] > 0 ? q[j] * std::log(q[j] / p[j]) : 0; break;
      case Divergence::jensen_shannon:
        sum += p[j] > 0 ? mix.beta * p[j] * std::log(p[j] / m) : 0;
        sum += q[j] > 0 ? (1 - mix.beta) * q[j] * std::log(q[j] / m) : 0;
        break;
    }
  }
  return sum;
}

std::vector<double> softmax(const double* row, std::size_t vocab, double temperature) {
  std::vector<double> p(row, row + vocab);
  const double most = *std::ranges::max_element(p);
  double sum = 0;
  for (double& x : p) sum += x = std::exp((x - most) / temperature);
  for (double& x : p) x /= sum;
  return p;
}

// Loss of one row by its definition.
double row_loss(const std::vector<double>& z, const double* t, std::size_t label, const Mix& mix, double* divergence) {
  const std::vector<double> p = softmax(t, z.size(), mix.temperature), q = softmax(z.data(), z.size(), mix.temperature),
                            whole = softmax(z.data(), z.size(), 1);
  const double d = divergence_of(p, q, mix);
  if (divergence != nullptr) *divergence = d;
  return -mix.cross_entropy * std::log(whole[label]) + mix.weight * mix.temperature * mix.temperature * d;
}

DistillationLossArgs args_of(const Mix& mix, float grad_scale) {
  return {.divergence = mix.divergence,
          .temperature = static_cast<float>(mix.temperature),
          .beta = static_cast<float>(mix.beta),
          .cross_entropy_weight = static_cast<float>(mix.cross_entropy),
          .divergence_weight = static_cast<float>(mix.weight),
          .grad_scale = grad_scale};
}

TEST(DistillationLoss, LossesAndGradientsFollowTheirDefinition) {
  std::uint32_t seed = 40;
  for (const Mix& mix : kMixes)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const std::int64_t vocab : {1, 5, 64, 77}) {
        SCOPED_TRACE(fmt::format("divergence {} temperature {} {} vocab {}", static_cast<int>(mix.divergence),
                                 mix.temperature, to_string(dtype), vocab));
        Generator random(++seed);
        const std::int64_t n = 6;
        const Tensor logits = random.normal({n, vocab}, dtype, 2), teacher = random.normal({n, vocab}, dtype, 2),
                     labels = random.integers(n, vocab);
        labels.data<std::int32_t>()[2] = kIgnoreLabel;
        const float scale = 0.3f;
        DistillationLossArgs args = args_of(mix, scale);
        args.logits = logits;
        args.target.logits = teacher;
        args.labels = labels;
        args.losses = Tensor::empty({n}, DType::f32);
        args.cross_entropies = Tensor::empty({n}, DType::f32);
        args.divergences = Tensor::empty({n}, DType::f32);
        args.dlogits = Tensor::empty({n, vocab}, DType::f32);
        distillation_loss(args);
        const std::vector<double> z = values(logits), t = values(teacher);
        std::vector<double> losses(6), divergences(6), gradient(z.size());
        const auto width = static_cast<std::size_t>(vocab);
        for (std::size_t i = 0; i < 6; ++i) {
          const std::int32_t label = labels.data<std::int32_t>()[i];
          if (label == kIgnoreLabel) continue;
          const auto at = static_cast<std::size_t>(label);
          std::vector<double> row(z.begin() + static_cast<std::ptrdiff_t>(i * width),
                                  z.begin() + static_cast<std::ptrdiff_t>((i + 1) * width));
          losses[i] = row_loss(row, &t[i * width], at, mix, &divergences[i]);
          for (std::size_t j = 0; j < width; ++j) {
            constexpr double kStep = 1e-4;
            const double x = row[j];
            row[j] = x + kStep;
            const double above = row_loss(row, &t[i * width], at, mix, nullptr);
            row[j] = x - kStep;
            gradient[i * width + j] = 0.3 * (above - row_loss(row, &t[i * width], at, mix, nullptr)) / (2 * kStep);
            row[j] = x;
          }
        }
        EXPECT_TRUE(close(args.losses, losses, 2e-6, 4e-6));
        const Tensor plain = Tensor::empty({n}, DType::f32);
        cross_entropy({.logits = logits, .labels = labels, .losses = plain});
        EXPECT_TRUE(close(args.cross_entropies, values(plain), 2e-6, 2e-6));
        EXPECT_TRUE(close(args.divergences, divergences, 2e-6, 2e-6));
        EXPECT_TRUE(close(args.dlogits, gradient, 1e-5, 2e-6));
        const Tensor whole = args.dlogits;
        args.dlogits = logits;  // in place
        distillation_loss(args);
        EXPECT_TRUE(close(args.dlogits, values(whole), rounding(dtype) * 1.01, 1e-7));
      }
}

// tests/reference/make_distillation.py.
TEST(DistillationLoss, AgreesWithPyTorch) {
  const Json reference = Json::parse_file(testing::source_dir() / "tests/reference/distillation.json");
  const auto matrix = [](std::uint32_t first) {
    const Tensor values = Tensor::empty({4, 37}, DType::f32);
    for (std::uint32_t i = 0; i < 4 * 37; ++i)
      values.data<float>()[i] = (static_cast<float>(testing::mixed(first + i) >> 16) - 32768) / 8192;
    return values;
  };
  for (const Json& row : reference.at("cases").as_array()) {
    const std::string& name = row.at("divergence").as_string();
    SCOPED_TRACE(fmt::format("{} {}", name, row.at("temperature").as_double()));
    const auto ratio = static_cast<float>(row.at("ratio").as_double());
    const DistillationLossArgs args{.logits = matrix(1),
                                    .target = {.logits = matrix(50'000)},
                                    .labels = Tensor::from_values<std::int32_t>({4}, std::array{3, 0, 36, 11}),
                                    .losses = Tensor::empty({4}, DType::f32),
                                    .cross_entropies = Tensor::empty({4}, DType::f32),
                                    .divergences = Tensor::empty({4}, DType::f32),
                                    .dlogits = Tensor::empty({4, 37}, DType::f32),
                                    .divergence = name == "forward_kl"   ? Divergence::forward_kl
                                                  : name == "reverse_kl" ? Divergence::reverse_kl
                                                                         : Divergence::jensen_shannon,
                                    .temperature = static_cast<float>(row.at("temperature").as_double()),
                                    .beta = static_cast<float>(row.at("beta").as_double()),
                                    .cross_entropy_weight = 1 - ratio,
                                    .divergence_weight = ratio};
    distillation_loss(args);
    const auto numbers = [&](std::string_view key) {
      std::vector<double> all;
      for (const Json& value : row.at(key).as_array()) all.push_back(value.as_double());
      return all;
    };
    EXPECT_TRUE(close(args.losses, numbers("losses"), 1e-6, 2e-6));
    EXPECT_TRUE(close(args.divergences, numbers("divergences"), 1e-6, 2e-6));
    EXPECT_TRUE(close(args.dlogits, numbers("gradient"), 2e-6, 1e-6));
  }
}

TEST(DistillationLoss, EqualDistributionsHaveNoDivergence) {
  Generator random(7);
  const Tensor logits = random.normal({4, 50}, DType::f32, 5), labels = random.integers(4, 50);
  for (const Divergence divergence : {Divergence::forward_kl, Divergence::reverse_kl, Divergence::jensen_shannon}) {
    const Tensor losses = Tensor::empty({4}, DType::f32), dlogits = Tensor::empty({4, 50}, DType::f32);
    distillation_loss({.logits = logits,
                       .target = {.logits = logits},
                       .labels = labels,
                       .losses = losses,
                       .cross_entropies = Tensor::empty({4}, DType::f32),
                       .divergences = Tensor::empty({4}, DType::f32),
                       .dlogits = dlogits,
                       .divergence = divergence});
    EXPECT_TRUE(close(losses, std::vector<double>(4), 0, 1e-6));
    EXPECT_TRUE(close(dlogits, std::vector<double>(200), 0, 1e-6));
  }
}

// A vocabulary padded with logits of -inf.
TEST(DistillationLoss, TokensWithoutProbabilityAddNothing) {
  Generator random(8);
  const Tensor logits = random.normal({2, 40}, DType::f32), teacher = random.normal({2, 40}, DType::f32),
               labels = random.integers(2, 30);
  for (std::int64_t i = 0; i < 2; ++i)
    for (std::int64_t j = 30; j < 40; ++j)
      logits.data<float>()[i * 40 + j] = teacher.data<float>()[i * 40 + j] = -INFINITY;
  for (const Divergence divergence : {Divergence::forward_kl, Divergence::reverse_kl, Divergence::jensen_shannon}) {
    const Tensor losses = Tensor::empty({2}, DType::f32), dlogits = Tensor::empty({2, 40}, DType::f32);
    distillation_loss({.logits = logits,
                       .target = {.logits = teacher},
                       .labels = labels,
                       .losses = losses,
                       .cross_entropies = Tensor::empty({2}, DType::f32),
                       .divergences = Tensor::empty({2}, DType::f32),
                       .dlogits = dlogits,
                       .divergence = divergence,
                       .cross_entropy_weight = 0.5f});
    for (const double loss : values(losses)) EXPECT_TRUE(std::isfinite(loss) && loss > 0);
    const std::vector<double> gradient = values(dlogits);
    for (std::size_t j = 0; j < gradient.size(); ++j) {
      EXPECT_TRUE(std::isfinite(gradient[j]));
      if (j % 40 >= 30) {
        EXPECT_EQ(gradient[j], 0);
      }
    }
  }
}

// The rows of tests/cuda/distillation_loss_test.cpp.
TEST(DistillationLoss, LargeVocabulariesKeepTheirDigits) {
  for (const std::int64_t vocab : {128256, 151937}) {
    Generator random(90);
    const std::int64_t n = 3;
    const Tensor logits = random.normal({n, vocab}, DType::bf16, 3),
                 teacher = random.normal({n, vocab}, DType::bf16, 3), labels = random.integers(n, vocab);
    const DistillationLossArgs args{.logits = logits,
                                    .target = {.logits = teacher},
                                    .labels = labels,
                                    .losses = Tensor::empty({n}, DType::f32),
                                    .cross_entropies = Tensor::empty({n}, DType::f32),
                                    .divergences = Tensor::empty({n}, DType::f32),
                                    .cross_entropy_weight = 0.5f};
    distillation_loss(args);
    const std::vector<double> z = values(logits), t = values(teacher);
    std::vector<double> losses(3), divergences(3);
    const Mix mix{Divergence::forward_kl, 1, 0.5, 0.5, 1};
    for (std::size_t i = 0; i < 3; ++i) {
      const auto width = static_cast<std::size_t>(vocab);
      const std::vector<double> row(z.begin() + static_cast<std::ptrdiff_t>(i * width),
                                    z.begin() + static_cast<std::ptrdiff_t>((i + 1) * width));
      losses[i] =
          row_loss(row, &t[i * width], static_cast<std::size_t>(labels.data<std::int32_t>()[i]), mix, &divergences[i]);
    }
    EXPECT_TRUE(close(args.divergences, divergences, 2e-6, 0));
    EXPECT_TRUE(close(args.losses, losses, 2e-6, 0));
  }
}

TEST(DistillationLoss, RefusesWhatDoesNotFit) {
  const Tensor labels = Tensor::zeros({2}, DType::i32), out = Tensor::zeros({2}, DType::f32);
  const Tensor logits = Tensor::zeros({2, 4}, DType::f32);
  DistillationLossArgs args{.logits = logits,
                            .target = {.logits = Tensor::zeros({2, 5}, DType::f32)},
                            .labels = labels,
                            .losses = out,
                            .cross_entropies = out,
                            .divergences = out};
  EXPECT_THROW(distillation_loss(args), Error);
  args.target.logits = Tensor::zeros({2, 4}, DType::bf16);
  EXPECT_THROW(distillation_loss(args), Error);
  args.target.logits = logits;
  args.temperature = 0;
  EXPECT_THROW(distillation_loss(args), Error);
  args.temperature = 1;
  args.beta = 1;
  EXPECT_THROW(distillation_loss(args), Error);
  args.beta = 0.5f;
  labels.data<std::int32_t>()[1] = 4;
  EXPECT_THROW(distillation_loss(args), Error);
}

}  // namespace
}  // namespace quench
