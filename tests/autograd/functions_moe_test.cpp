#include "autograd/functions_moe.h"

#include <gtest/gtest.h>

#include "autograd/functions.h"
#include "autograd/gradcheck.h"
#include "autograd/swiglu.h"
#include "tests/core/ops/op_testing.h"

namespace quench::autograd {
namespace {

using testing::Generator;

constexpr std::int64_t kTokens = 12, kHidden = 8, kExperts = 4, kChoices = 2, kInner = 6;

// A whole layer: router, dispatch, experts, combination.
Variable layer(const std::vector<Variable>& in, const RoutingOptions& options, bool score_before_experts = false) {
  const Variable &x = in[0], &router = in[1], &gate_up = in[2], &down = in[3];
  const Routing routing = route(router_logits(x, router), options);
  const Variable rows = permute_tokens(x, routing.rows);
  const Variable inner =
      expert_swiglu(expert_linear(rows, gate_up, routing.rows), routing.weights, routing.rows, score_before_experts);
  return unpermute_tokens(expert_linear(inner, down, routing.rows), routing.rows);
}

std::vector<Tensor> inputs() {
  Generator random(17);
  // Logits that lie far apart: a step of the check must not change a choice.
  return {random.normal({kTokens, kHidden}, DType::f32), random.normal({kExperts, kHidden}, DType::f32, 2.0),
          random.normal({kExperts * 2 * kInner, kHidden}, DType::f32, 0.5),
          random.normal({kExperts * kHidden, kInner}, DType::f32, 0.5)};
}

TEST(MoeFunctions, GradientsOfAWholeLayer) {
  for (const auto& [rule, alignment] :
       {std::pair{RouterRule{.normalize = true}, 1},
        {RouterRule{}, 16},
        {RouterRule{
             .scoring = RouterScoring::sigmoid, .normalize = true, .factor = 2.0f, .groups = 2, .groups_per_token = 1},
         1}}) {
    const RoutingOptions options{.rule = rule, .choices = kChoices, .alignment = alignment, .bias = {}, .terms = {}};
    const GradcheckResult result =
        gradcheck([&](const std::vector<Variable>& in) { return layer(in, options); }, inputs(), {.step = 1e-3});
    EXPECT_TRUE(result.ok) << result.failure;
  }
}

TEST(MoeFunctions, RouterWeightsMayScaleTheExpertInput) {
  const RoutingOptions options{
      .rule = {.scoring = RouterScoring::sigmoid}, .choices = 1, .alignment = 16, .bias = {}, .terms = {}};
  const auto weighted = [&](const std::vector<Variable>& in) { return layer(in, options, true); };
  const GradcheckResult result = gradcheck(weighted, inputs(), {.step = 1e-3});
  EXPECT_TRUE(result.ok) << result.failure;
  // A token times its weight, through the expert without one.
  std::vector<Tensor> scaled = inputs();
  const Routing routing = route(router_logits(Variable(scaled[0]), Variable(scaled[1])), options);
  const TokenPermutation& rows = routing.rows;
  for (std::int64_t t = 0; t < kTokens; ++t)
    for (std::int64_t i = 0; i < kHidden; ++i)
      scaled[0].data<float>()[t * kHidden + i] *= routing.weights.value().data<float>()[t];
  const Tensor ones = Tensor::from_values<float>({kTokens, 1}, std::vector<float>(kTokens, 1.0f));
  const Variable by_hand = unpermute_tokens(
      expert_linear(expert_swiglu(expert_linear(permute_tokens(Variable(scaled[0]), rows), Variable(scaled[2]), rows),
                                  Variable(ones), rows),
                    Variable(scaled[3]), rows),
      rows);
  std::vector<Variable> in;
  for (const Tensor& t : inputs()) in.emplace_back(t);
  EXPECT_TRUE(testing::close(weighted(in).value(), testing::values(by_hand.value()), 1e-5, 1e-6));
}

// Every way to save gives the same bits, and the padding of groups changes nothing but the order of sums.
TEST(MoeFunctions, RecomputationGivesTheSameGradients) {
  const auto gradients = [](Recompute level, std::int64_t alignment) {
    std::vector<Variable> leaves;
    for (const Tensor& t : inputs()) leaves.push_back(Variable::leaf(t));
    Tape tape(level);
    {
      const TapeScope scope(tape);
      const Variable norm = Variable::leaf(Tensor::from_values<float>({kHidden}, std::vector<float>(kHidden, 1.5f)));
      std::vector<Variable> in = leaves;
      in[0] = rms_norm(leaves[0], norm, 1e-5f);
      const RoutingOptions options{
          .rule = {.normalize = true}, .choices = kChoices, .alignment = alignment, .bias = {}, .terms = {}};
      const Variable y = layer(in, options);
      y.gradient()->contribute(Generator(3).normal(y.value().shape(), DType::f32));
    }
    tape.backward();
    std::vector<Tensor> result;
    for (const Variable& leaf : leaves) result.push_back(leaf.grad());
    return result;
  };
  const auto kept = gradients(Recompute::none, 1), again = gradients(Recompute::selective, 1);
  const auto padded = gradients(Recompute::selective, 32);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    EXPECT_TRUE(testing::same_bits(kept[i], again[i])) << i;
    EXPECT_TRUE(testing::close(padded[i], testing::values(kept[i]), 1e-5, 1e-6)) << i;
  }
}

TEST(MoeFunctions, TermsOfTheRouterReachTheLogits) {
  const std::vector<Tensor> tensors = inputs();
  const auto router_gradient = [&](const RouterTerms& terms) {
    const Variable x(tensors[0]), weight = Variable::leaf(tensors[1]);
    Tape tape;
    {
      const TapeScope scope(tape);
      const Routing routing = route(router_logits(x, weight), {.choices = kChoices, .bias = {}, .terms = terms});
      routing.weights.gradient()->contribute(Tensor::zeros({kTokens, kChoices}, DType::f32));
    }
    tape.backward();
    double norm = 0;
    for (const double g : testing::values(weight.grad())) norm += g * g;
    return norm;
  };
  EXPECT_EQ(router_gradient({}), 0.0);
  EXPECT_GT(router_gradient({.balance = 0.1f}), 0.0);
  EXPECT_GT(router_gradient({.z = 0.1f}), 0.0);
}

// Terms of some tokens are those of a router that gets these alone; the others get none.
TEST(MoeFunctions, TermsOfSomeTokensLeaveOutTheOthers) {
  const std::vector<Tensor> tensors = inputs();
  const Tensor logits = router_logits(Variable(tensors[0]), Variable(tensors[1])).value();
  const std::vector<std::int32_t> rows = {1, 2, 5, 6, 7, 10, 11};
  const auto count = static_cast<std::int64_t>(rows.size());
  Tensor some = Tensor::empty({count, kExperts}, DType::f32);
  for (std::int64_t i = 0; i < count; ++i)
    some.select(0, i).copy_from(logits.select(0, rows[static_cast<std::size_t>(i)]));
  const auto run = [](const Tensor& values, const RoutingOptions& options) {
    const Variable in = Variable::leaf(values);
    Tape tape;
    Routing routing;
    {
      const TapeScope scope(tape);
      routing = route(in, options);
      routing.weights.gradient()->contribute(Tensor::zeros({values.size(0), kChoices}, DType::f32));
    }
    tape.backward();
    return std::pair(testing::values(in.grad()), testing::values(routing.counted.counts));
  };
  for (const RouterTerms& terms : {RouterTerms{.balance = 0.3f}, RouterTerms{.z = 0.2f}, RouterTerms{0.3f, 0.2f}}) {
    const auto [alone, alone_counts] = run(some, {.choices = kChoices, .bias = {}, .terms = terms});
    const auto [all, counts] = run(
        logits, {.choices = kChoices, .bias = {}, .terms = terms, .counted = select_tokens(rows, kTokens, Device{})});
    EXPECT_EQ(counts, alone_counts);
    std::vector<double> expected(static_cast<std::size_t>(kTokens * kExperts), 0.0);
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t e = 0; e < kExperts; ++e)
        expected[static_cast<std::size_t>(rows[i]) * kExperts + e] = alone[i * kExperts + e];
    EXPECT_EQ(all, expected);
  }
  const auto [none, counts] = run(logits, {.choices = kChoices,
                                           .bias = {},
                                           .terms = {.balance = 0.3f, .z = 0.2f},
                                           .counted = select_tokens({}, kTokens, Device{})});
  EXPECT_EQ(none, std::vector<double>(static_cast<std::size_t>(kTokens * kExperts), 0.0));
  EXPECT_EQ(counts, std::vector<double>(kExperts, 0.0));
}

TEST(MoeFunctions, AllTokensToOneExpertAndNoTokens) {
  std::vector<Tensor> tensors = inputs();
  tensors[1].zero();  // equal scores: experts 0 and 1
  std::vector<Variable> leaves;
  for (const Tensor& t : tensors) leaves.push_back(Variable::leaf(t));
  Tape tape;
  {
    const TapeScope scope(tape);
    const Variable y = layer(leaves, {.choices = 1, .bias = {}, .terms = {}});
    y.gradient()->contribute(Generator(3).normal(y.value().shape(), DType::f32));
  }
  tape.backward();
  const Tensor expert = leaves[2].grad().view({kExperts, 2 * kInner * kHidden});
  for (std::int64_t e = 0; e < kExperts; ++e) {
    double norm = 0;
    for (const double g : testing::values(expert.select(0, e))) norm += g * g;
    EXPECT_EQ(norm > 0, e == 0) << "expert " << e;
  }
  tensors[0] = Tensor::zeros({0, kHidden}, DType::f32);
  std::vector<Variable> none;
  for (const Tensor& t : tensors) none.push_back(Variable(t));
  EXPECT_EQ(layer(none, {.choices = 2, .bias = {}, .terms = {}}).value().size(0), 0);
}

}  // namespace
}  // namespace quench::autograd
