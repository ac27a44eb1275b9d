#include "core/ops/experts/router.h"

#include <numeric>

#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

struct Choice {
  std::vector<std::int32_t> experts;
  std::vector<double> weights;
};

// One token by the formulas, in f64.
Choice choose(const std::vector<double>& logits, const std::vector<double>& bias, std::int64_t chosen,
              const RouterRule& rule) {
  const std::size_t n = logits.size(), size = n / static_cast<std::size_t>(rule.groups);
  std::vector<double> scores(n), choice(n);
  double total = 0;
  for (std::size_t e = 0; e < n; ++e) total += std::exp(logits[e]);
  for (std::size_t e = 0; e < n; ++e) {
    scores[e] = rule.scoring == RouterScoring::softmax ? std::exp(logits[e]) / total : 1 / (1 + std::exp(-logits[e]));
    choice[e] = scores[e] + (bias.empty() ? 0 : bias[e]);
  }
  std::vector<double> group(static_cast<std::size_t>(rule.groups));
  for (std::size_t g = 0; g < group.size(); ++g) {
    std::vector<double> members(choice.begin() + static_cast<std::ptrdiff_t>(g * size),
                                choice.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::sort(members.rbegin(), members.rend());
    group[g] = members[0] + (size > 1 ? members[1] : 0);
  }
  std::vector<std::size_t> by_group(group.size());
  std::iota(by_group.begin(), by_group.end(), 0u);
  std::stable_sort(by_group.begin(), by_group.end(), [&](auto a, auto b) { return group[a] > group[b]; });
  for (std::size_t i = static_cast<std::size_t>(rule.groups_per_token); i < by_group.size(); ++i)
    for (std::size_t e = by_group[i] * size; e < (by_group[i] + 1) * size; ++e) choice[e] = -INFINITY;
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return choice[a] > choice[b]; });
  Choice result;
  double sum = 0;
  for (std::size_t j = 0; j < static_cast<std::size_t>(chosen); ++j) sum += scores[order[j]];
  for (std::size_t j = 0; j < static_cast<std::size_t>(chosen); ++j) {
    result.experts.push_back(static_cast<std::int32_t>(order[j]));
    result.weights.push_back(scores[order[j]] * static_cast<double>(rule.factor) / (rule.normalize ? sum : 1));
  }
  return result;
}

struct Case {
  std::int64_t experts, chosen;
  RouterRule rule;
  bool bias = false;
};

std::vector<Case> cases() {
  using enum RouterScoring;
  return {{8, 2, {.scoring = softmax, .normalize = true}},
          {6, 2, {.scoring = softmax}},
          {128, 8, {.scoring = softmax, .normalize = true, .factor = 0.5f}},
          {1, 1, {.scoring = softmax, .normalize = true}},
          {5, 5, {.scoring = softmax}},
          {16, 4, {.scoring = sigmoid, .normalize = true, .factor = 2.5f, .groups = 4, .groups_per_token = 2}, true},
          {12, 1, {.scoring = sigmoid}},
          {8, 2, {.scoring = softmax, .groups = 8, .groups_per_token = 2}, true}};
}

std::vector<double> row(const std::vector<double>& all, std::int64_t index, std::int64_t width) {
  return {all.begin() + index * width, all.begin() + (index + 1) * width};
}

TEST(Router, ChoosesByTheFormula) {
  constexpr std::int64_t kTokens = 37;
  for (const Case& c : cases()) {
    SCOPED_TRACE(fmt::format("{} of {}, {} groups", c.chosen, c.experts, c.rule.groups));
    Generator random(static_cast<std::uint32_t>(c.experts));
    const Tensor logits = random.normal({kTokens, c.experts}, DType::f32, 2.0);
    const Tensor bias = c.bias ? random.normal({c.experts}, DType::f32, 0.5) : Tensor();
    const Tensor experts = Tensor::empty({kTokens, c.chosen}, DType::i32);
    const Tensor weights = Tensor::empty({kTokens, c.chosen}, DType::f32);
    router({logits, bias, experts, weights, c.rule});
    const auto x = values(logits), b = bias.defined() ? values(bias) : std::vector<double>();
    for (std::int64_t t = 0; t < kTokens; ++t) {
      const Choice expected = choose(row(x, t, c.experts), b, c.chosen, c.rule);
      for (std::int64_t j = 0; j < c.chosen; ++j) {
        EXPECT_EQ(experts.data<std::int32_t>()[t * c.chosen + j], expected.experts[static_cast<std::size_t>(j)]);
        EXPECT_NEAR(weights.data<float>()[t * c.chosen + j], expected.weights[static_cast<std::size_t>(j)], 1e-6);
      }
    }
  }
}

TEST(Router, EqualScoresGoToTheLowerExpertAndNaNLoses) {
  const Tensor logits = Tensor::zeros({3, 4}, DType::f32);
  float* x = logits.data<float>();
  x[4 + 2] = 1.0f;
  x[4 + 3] = 1.0f;
  for (int e = 0; e < 4; ++e) x[8 + e] = NAN;
  const Tensor experts = Tensor::empty({3, 3}, DType::i32), weights = Tensor::empty({3, 3}, DType::f32);
  router({logits, {}, experts, weights, {}});
  const auto got = values(experts);
  EXPECT_EQ(row(got, 0, 3), (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(row(got, 1, 3), (std::vector<double>{2, 3, 0}));
  EXPECT_EQ(row(got, 2, 3), (std::vector<double>{0, 1, 2})) << "every choice is another expert";
  EXPECT_TRUE(std::isnan(weights.data<float>()[8]));
}

// The loss whose derivative router_backward gives: weights times fixed factors, and the router's own terms.
double loss_of(const Tensor& logits, const Tensor& experts, const Tensor& counts, const std::vector<double>& factors,
               const RouterRule& rule, const RouterTerms& terms) {
  const std::int64_t tokens = logits.size(0), n = logits.size(1), chosen = experts.size(1);
  const auto x = values(logits);
  std::vector<double> mean_p(static_cast<std::size_t>(n));
  double loss = 0, z = 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    double total = 0, sum = 0;
    for (std::int64_t e = 0; e < n; ++e) total += std::exp(x[static_cast<std::size_t>(t * n + e)]);
    const auto score = [&](std::int64_t e) {
      const double logit = x[static_cast<std::size_t>(t * n + e)];
      return rule.scoring == RouterScoring::softmax ? std::exp(logit) / total : 1 / (1 + std::exp(-logit));
    };
    const std::int32_t* ids = experts.data<std::int32_t>() + t * chosen;
    for (std::int64_t j = 0; j < chosen; ++j) sum += score(ids[j]);
    for (std::int64_t j = 0; j < chosen; ++j)
      loss += factors[static_cast<std::size_t>(t * chosen + j)] * score(ids[j]) * static_cast<double>(rule.factor) /
              (rule.normalize ? sum : 1);
    for (std::int64_t e = 0; e < n; ++e)
      mean_p[static_cast<std::size_t>(e)] += std::exp(x[static_cast<std::size_t>(t * n + e)]) / total;
    z += std::log(total) * std::log(total);
  }
  const auto count = static_cast<double>(tokens);
  for (std::int64_t e = 0; e < n; ++e)
    loss += static_cast<double>(terms.balance) * static_cast<double>(n) * static_cast<double>(counts.data<float>()[e]) /
            count * mean_p[static_cast<std::size_t>(e)] / count;
  return loss + static_cast<double>(terms.z) * z / count;
}

TEST(Router, LogitsDecideWhereSigmoidsAreEqual) {
  const Tensor logits = Tensor::from_values<float>({2, 4}, std::vector<float>{20, 30, 25, -1, 40, 18, 41, 40.5f});
  const Tensor experts = Tensor::empty({2, 2}, DType::i32), weights = Tensor::empty({2, 2}, DType::f32);
  router({.logits = logits, .experts = experts, .weights = weights, .rule = {.scoring = RouterScoring::sigmoid}});
  EXPECT_EQ(values(experts), (std::vector<double>{1, 2, 2, 3}));
  EXPECT_EQ(values(weights), (std::vector<double>{1, 1, 1, 1}));
}

TEST(Router, BackwardIsTheDerivative) {
  constexpr std::int64_t kTokens = 5;
  for (const Case& c : cases()) {
    SCOPED_TRACE(fmt::format("{} of {}, {} groups", c.chosen, c.experts, c.rule.groups));
    Generator random(7);
    const Tensor logits = random.normal({kTokens, c.experts}, DType::f32);
    const Tensor experts = Tensor::empty({kTokens, c.chosen}, DType::i32);
    const Tensor weights = Tensor::empty({kTokens, c.chosen}, DType::f32);
    router({logits, {}, experts, weights, c.rule});
    const Tensor counts = Tensor::zeros({c.experts}, DType::f32);
    for (const double e : values(experts)) counts.data<float>()[static_cast<std::int64_t>(e)] += 1;
    const Tensor dweights = random.normal({kTokens, c.chosen}, DType::f32);
    const Tensor dlogits = Tensor::empty(logits.shape(), DType::f32);
    const RouterTerms terms{.balance = 0.3f, .z = 0.1f};
    router_backward({dweights, logits, experts, counts, dlogits, c.rule, terms});
    const auto factors = values(dweights);
    std::vector<double> expected;
    for (std::int64_t i = 0; i < logits.numel(); ++i) {
      constexpr double kStep = 1e-3;
      const double x = get_element(logits, i);
      double side[2];
      for (int s = 0; s < 2; ++s) {
        set_element(logits, i, x + (s == 0 ? kStep : -kStep));
        side[s] = loss_of(logits, experts, counts, factors, c.rule, terms);
      }
      const double high = static_cast<double>(static_cast<float>(x + kStep)),
                   low = static_cast<double>(static_cast<float>(x - kStep));
      expected.push_back((side[0] - side[1]) / (high - low));
      set_element(logits, i, x);
    }
    EXPECT_TRUE(close(dlogits, expected, 1e-4, 2e-5));
    // The terms' values are those that were differentiated.
    const Tensor losses = Tensor::empty({2}, DType::f32);
    router_loss({logits, counts, losses});
    const double without = loss_of(logits, experts, counts, factors, c.rule, {});
    EXPECT_NEAR(static_cast<double>(losses.data<float>()[0]),
                loss_of(logits, experts, counts, factors, c.rule, {.balance = 1, .z = 0}) - without, 1e-4);
    EXPECT_NEAR(static_cast<double>(losses.data<float>()[1]),
                loss_of(logits, experts, counts, factors, c.rule, {.balance = 0, .z = 1}) - without, 1e-4);
  }
}

TEST(Router, DoesNotDependOnThreads) {
  Generator random(3);
  const Tensor logits = random.normal({300, 64}, DType::f32), experts = Tensor::empty({300, 4}, DType::i32);
  const Tensor weights = Tensor::empty({300, 4}, DType::f32), dlogits = Tensor::empty({300, 64}, DType::f32);
  const Tensor counts = random.normal({64}, DType::f32), losses = Tensor::empty({2}, DType::f32);
  EXPECT_TRUE(independent_of_threads({experts, weights, dlogits, losses}, [&] {
    router({logits, {}, experts, weights, {.normalize = true}});
    router_backward({weights, logits, experts, counts, dlogits, {.normalize = true}, {.balance = 1, .z = 1}});
    router_loss({logits, counts, losses});
  }));
}

TEST(Router, RefusesWhatCannotBeChosen) {
  const Tensor logits = Tensor::zeros({2, 6}, DType::f32);
  const auto choose_of = [&](std::int64_t k, const RouterRule& rule) {
    router({logits, {}, Tensor::zeros({2, k}, DType::i32), Tensor::zeros({2, k}, DType::f32), rule});
  };
  EXPECT_THROW(choose_of(7, {}), Error) << "more than there are";
  EXPECT_THROW(choose_of(2, {.groups = 4}), Error) << "groups of unequal size";
  EXPECT_THROW(choose_of(3, {.groups = 3, .groups_per_token = 1}), Error) << "more than the open groups have";
  EXPECT_THROW(choose_of(1, {.groups = 2, .groups_per_token = 3}), Error);
  choose_of(6, {});
  router({Tensor::zeros({0, 6}, DType::f32),
          {},
          Tensor::zeros({0, 2}, DType::i32),
          Tensor::zeros({0, 2}, DType::f32),
          {}});
}

}  // namespace
}  // namespace quench
