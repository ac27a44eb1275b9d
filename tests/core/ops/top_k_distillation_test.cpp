#include <algorithm>
#include <numeric>

#include "core/json/json.h"
#include "core/ops/loss/cross_entropy.h"
#include "core/ops/loss/distillation_loss.h"
#include "core/ops/loss/top_k_log_probs.h"
#include "tests/core/ops/op_testing.h"
#include "tests/reference_numbers.h"
#include "tests/testing.h"

namespace quench {
namespace {

using namespace testing;

struct Kept {
  Tensor ids, log_probs, tail;
};

Kept keep(const Tensor& logits, std::int64_t k, double temperature = 1) {
  const std::int64_t n = logits.size(0);
  Kept kept{Tensor::empty({n, k}, DType::i32), Tensor::empty({n, k}, DType::f32), Tensor::empty({n}, DType::f32)};
  top_k_log_probs({.logits = logits,
                   .ids = kept.ids,
                   .log_probs = kept.log_probs,
                   .tail = kept.tail,
                   .temperature = static_cast<float>(temperature)});
  return kept;
}

std::vector<double> log_softmax(const double* row, std::size_t vocab, double temperature) {
  double most = -INFINITY, sum = 0;
  for (std::size_t j = 0; j < vocab; ++j) most = std::max(most, row[j] / temperature);
  for (std::size_t j = 0; j < vocab; ++j) sum += std::exp(row[j] / temperature - most);
  std::vector<double> result(row, row + vocab);
  for (double& x : result) x = x / temperature - most - std::log(sum);
  return result;
}

// Probabilities of the kept ids, and of all others.
std::vector<double> outcomes(const double* row, std::size_t vocab, const std::int32_t* ids, std::int64_t k,
                             double temperature) {
  const std::vector<double> whole = log_softmax(row, vocab, temperature);
  std::vector<double> result;
  std::vector<bool> kept(vocab);
  for (std::int64_t j = 0; j < k; ++j) {
    kept[static_cast<std::size_t>(ids[j])] = true;
    result.push_back(std::exp(whole[static_cast<std::size_t>(ids[j])]));
  }
  double rest = 0;
  for (std::size_t j = 0; j < vocab; ++j) rest += kept[j] ? 0 : std::exp(whole[j]);
  result.push_back(rest);
  return result;
}

struct KeptMix {
  Divergence divergence;
  double temperature, beta, cross_entropy, weight;
};

constexpr KeptMix kKeptMixes[] = {
    {Divergence::forward_kl, 1, 0.5, 0, 1},     {Divergence::forward_kl, 2, 0.5, 0.25, 0.75},
    {Divergence::reverse_kl, 1, 0.5, 0, 1},     {Divergence::reverse_kl, 0.7, 0.5, 0.5, 0.5},
    {Divergence::jensen_shannon, 1, 0.5, 0, 1}, {Divergence::jensen_shannon, 3, 0.1, 0.1, 0.9},
};

double kept_divergence(const std::vector<double>& p, const std::vector<double>& q, const KeptMix& mix) {
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

DistillationLossArgs kept_args(const Tensor& logits, const Kept& kept, const Tensor& labels, const KeptMix& mix) {
  const std::int64_t n = logits.size(0);
  return {.logits = logits,
          .target = {.ids = kept.ids, .log_probs = kept.log_probs, .tail = kept.tail},
          .labels = labels,
          .losses = Tensor::empty({n}, DType::f32),
          .cross_entropies = Tensor::empty({n}, DType::f32),
          .divergences = Tensor::empty({n}, DType::f32),
          .dlogits = Tensor::empty(logits.shape(), DType::f32),
          .divergence = mix.divergence,
          .temperature = static_cast<float>(mix.temperature),
          .beta = static_cast<float>(mix.beta),
          .cross_entropy_weight = static_cast<float>(mix.cross_entropy),
          .divergence_weight = static_cast<float>(mix.weight)};
}

TEST(TopKLogProbs, AreTheLargestByAscendingId) {
  std::uint32_t seed = 10;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t vocab : {1, 7, 64, 301})
      for (const std::int64_t k : {std::int64_t{1}, std::int64_t{5}, vocab}) {
        if (k > vocab) continue;
        SCOPED_TRACE(fmt::format("{} vocab {} k {}", to_string(dtype), vocab, k));
        Generator random(++seed);
        const Tensor logits = random.normal({4, vocab}, dtype, 3);
        const Kept kept = keep(logits, k, 2);
        const std::vector<double> z = values(logits);
        const auto width = static_cast<std::size_t>(vocab);
        std::vector<double> expected, tails;
        for (std::size_t i = 0; i < 4; ++i) {
          std::vector<std::int32_t> order(width);
          std::iota(order.begin(), order.end(), 0);
          std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) {
            return z[i * width + static_cast<std::size_t>(a)] > z[i * width + static_cast<std::size_t>(b)];
          });
          std::sort(order.begin(), order.begin() + k);
          const std::vector<double> whole = log_softmax(&z[i * width], width, 2);
          for (std::int64_t j = 0; j < k; ++j) {
            const std::int32_t id = order[static_cast<std::size_t>(j)];
            EXPECT_EQ(kept.ids.data<std::int32_t>()[static_cast<std::int64_t>(i) * k + j], id);
            expected.push_back(whole[static_cast<std::size_t>(id)]);
          }
          tails.push_back(k == vocab ? -INFINITY : std::log(outcomes(&z[i * width], width, order.data(), k, 2).back()));
        }
        EXPECT_TRUE(close(kept.log_probs, expected, 2e-6, 1e-6));
        EXPECT_TRUE(close(kept.tail, tails, 2e-6, 1e-6));
      }
}

TEST(TopKLogProbs, EqualLogitsAndNoNumbers) {
  const Tensor logits = Tensor::zeros({2, 9}, DType::f32);
  logits.data<float>()[4] = 1;
  logits.data<float>()[12] = NAN;
  const Kept kept = keep(logits, 3);
  EXPECT_EQ(values(kept.ids)[0], 0);
  EXPECT_EQ(values(kept.ids)[1], 1);
  EXPECT_EQ(values(kept.ids)[2], 4);
  for (int j = 3; j < 6; ++j) EXPECT_TRUE(std::isnan(values(kept.log_probs)[static_cast<std::size_t>(j)]));
}

TEST(TopKDistillationLoss, LossesAndGradientsFollowTheirDefinition) {
  std::uint32_t seed = 70;
  for (const KeptMix& mix : kKeptMixes)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const std::int64_t vocab : {5, 64, 77})
        for (const std::int64_t k : {1, 4, 33}) {
          if (k > vocab) continue;
          SCOPED_TRACE(fmt::format("divergence {} temperature {} {} vocab {} k {}", static_cast<int>(mix.divergence),
                                   mix.temperature, to_string(dtype), vocab, k));
          Generator random(++seed);
          const std::int64_t n = 5;
          const Tensor logits = random.normal({n, vocab}, dtype, 2), teacher = random.normal({n, vocab}, DType::f32, 2),
                       labels = random.integers(n, vocab);
          labels.data<std::int32_t>()[2] = kIgnoreLabel;
          const Kept kept = keep(teacher, k, mix.temperature);
          labels.data<std::int32_t>()[0] = kept.ids.data<std::int32_t>()[0];
          DistillationLossArgs args = kept_args(logits, kept, labels, mix);
          args.grad_scale = 0.3f;
          distillation_loss(args);
          const std::vector<double> z = values(logits), t = values(teacher);
          std::vector<double> losses(5), divergences(5), gradient(z.size());
          const auto width = static_cast<std::size_t>(vocab);
          for (std::size_t i = 0; i < 5; ++i) {
            const std::int32_t label = labels.data<std::int32_t>()[i];
            if (label == kIgnoreLabel) continue;
            const std::int32_t* ids = kept.ids.data<std::int32_t>() + static_cast<std::int64_t>(i) * k;
            const std::vector<double> p = outcomes(&t[i * width], width, ids, k, mix.temperature);
            std::vector<double> row(z.begin() + static_cast<std::ptrdiff_t>(i * width),
                                    z.begin() + static_cast<std::ptrdiff_t>((i + 1) * width));
            const auto loss = [&] {
              divergences[i] = kept_divergence(p, outcomes(row.data(), width, ids, k, mix.temperature), mix);
              return -mix.cross_entropy * log_softmax(row.data(), width, 1)[static_cast<std::size_t>(label)] +
                     mix.weight * mix.temperature * mix.temperature * divergences[i];
            };
            for (std::size_t j = 0; j < width; ++j) {
              constexpr double kStep = 1e-4;
              const double x = row[j];
              row[j] = x + kStep;
              const double above = loss();
              row[j] = x - kStep;
              gradient[i * width + j] = 0.3 * (above - loss()) / (2 * kStep);
              row[j] = x;
            }
            losses[i] = loss();
          }
          EXPECT_TRUE(close(args.losses, losses, 2e-6, 4e-6));
          EXPECT_TRUE(close(args.divergences, divergences, 2e-6, 2e-6));
          EXPECT_TRUE(close(args.dlogits, gradient, 1e-5, 2e-6));
          const Tensor whole = args.dlogits;
          args.dlogits = logits;  // in place
          distillation_loss(args);
          EXPECT_TRUE(close(args.dlogits, values(whole), rounding(dtype) * 1.01, 1e-7));
        }
}

TEST(TopKDistillationLoss, AllTokensAreTheWholeVocabulary) {
  Generator random(5);
  const Tensor logits = random.normal({6, 90}, DType::f32, 3), teacher = random.normal({6, 90}, DType::f32, 3),
               labels = random.integers(6, 90);
  for (const KeptMix& mix : kKeptMixes) {
    const DistillationLossArgs args = kept_args(logits, keep(teacher, 90, mix.temperature), labels, mix);
    distillation_loss(args);
    const DistillationLossArgs whole{.logits = logits,
                                     .target = {.logits = teacher},
                                     .labels = labels,
                                     .losses = Tensor::empty({6}, DType::f32),
                                     .cross_entropies = Tensor::empty({6}, DType::f32),
                                     .divergences = Tensor::empty({6}, DType::f32),
                                     .dlogits = Tensor::empty({6, 90}, DType::f32),
                                     .divergence = args.divergence,
                                     .temperature = args.temperature,
                                     .beta = args.beta,
                                     .cross_entropy_weight = args.cross_entropy_weight,
                                     .divergence_weight = args.divergence_weight};
    distillation_loss(whole);
    EXPECT_TRUE(close(args.losses, values(whole.losses), 1e-6, 1e-6));
    EXPECT_TRUE(close(args.cross_entropies, values(whole.cross_entropies), 0, 0));
    EXPECT_TRUE(close(args.dlogits, values(whole.dlogits), 2e-6, 1e-6));
  }
}

// tests/reference/make_distillation.py.
TEST(TopKDistillationLoss, AgreesWithPyTorch) {
  const Json reference = Json::parse_file(testing::source_dir() / "tests/reference/distillation.json");
  const auto matrix = [](std::uint32_t first) {
    const Tensor result = Tensor::empty({4, 37}, DType::f32);
    for (std::uint32_t i = 0; i < 4 * 37; ++i)
      result.data<float>()[i] = (static_cast<float>(testing::mixed(first + i) >> 16) - 32768) / 8192;
    return result;
  };
  const Tensor labels = Tensor::from_values<std::int32_t>({4}, std::array{3, 0, 36, 11});
  ASSERT_FALSE(reference.at("top_k").as_array().empty());
  for (const Json& row : reference.at("top_k").as_array()) {
    const std::string& name = row.at("divergence").as_string();
    SCOPED_TRACE(fmt::format("{} of {}", name, row.at("top_k").as_int()));
    const double temperature = row.at("temperature").as_double(), ratio = row.at("ratio").as_double();
    const DistillationLossArgs args =
        kept_args(matrix(1), keep(matrix(50'000), row.at("top_k").as_int(), temperature), labels,
                  {name == "forward_kl"   ? Divergence::forward_kl
                   : name == "reverse_kl" ? Divergence::reverse_kl
                                          : Divergence::jensen_shannon,
                   temperature, row.at("beta").as_double(), 1 - ratio, ratio});
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

// A tail of 1e-8 is no difference of sums near 1.
TEST(TopKDistillationLoss, SmallTailsKeepTheirDigits) {
  constexpr std::int64_t kVocab = 1000;
  const Tensor logits = Tensor::zeros({1, kVocab}, DType::f32), teacher = Tensor::zeros({1, kVocab}, DType::f32);
  logits.data<float>()[7] = 26;
  teacher.data<float>()[7] = 25;
  const Tensor labels = Tensor::from_values<std::int32_t>({1}, std::array{7});
  for (const KeptMix& mix : {KeptMix{Divergence::forward_kl, 1, 0.5, 0, 1}, {Divergence::reverse_kl, 1, 0.5, 0, 1}}) {
    const Kept kept = keep(teacher, 1);
    const DistillationLossArgs args = kept_args(logits, kept, labels, mix);
    distillation_loss(args);
    const double p = 999 / (999 + std::exp(25.0)), q = 999 / (999 + std::exp(26.0));
    EXPECT_TRUE(close(kept.tail, {std::log(p)}, 1e-6, 0));
    // Every other token has a share of the tail's gradient.
    const double slope = mix.divergence == Divergence::forward_kl ? q - p : q * (1 - q) * std::log(q / p);
    EXPECT_NEAR(values(args.dlogits)[500], slope / 999, 1e-4 * std::abs(slope) / 999);
  }
}

TEST(TopKDistillationLoss, RefusesWhatDoesNotFit) {
  const Tensor labels = Tensor::zeros({2}, DType::i32), logits = Tensor::zeros({2, 4}, DType::f32);
  const KeptMix mix{Divergence::forward_kl, 1, 0.5, 0, 1};
  DistillationLossArgs args = kept_args(logits, keep(logits, 2), labels, mix);
  args.target.ids.data<std::int32_t>()[3] = 4;
  EXPECT_THROW(distillation_loss(args), Error);
  args.target.ids = Tensor::zeros({2, 5}, DType::i32);
  EXPECT_THROW(distillation_loss(args), Error);
  args = kept_args(logits, keep(logits, 2), labels, mix);
  args.temperature = 0;
  EXPECT_THROW(distillation_loss(args), Error);
  labels.data<std::int32_t>()[1] = 4;
  args.temperature = 1;
  EXPECT_THROW(distillation_loss(args), Error);
  EXPECT_THROW((void)keep(logits, 0), Error);
  EXPECT_THROW((void)keep(logits, 5), Error);
}

}  // namespace
}  // namespace quench
