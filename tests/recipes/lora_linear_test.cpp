// Layers with adapters: outputs, gradients, and the order in which they are computed.

#include "recipes/lora/lora_linear.h"

#include <gmock/gmock.h>

#include "autograd/functions.h"
#include "autograd/gradcheck.h"
#include "autograd/swiglu.h"
#include "tests/recipes/lora_testing.h"

namespace quench::recipes {
namespace {

using autograd::Variable;
using testing::fill;
using testing::random_matrix;

// Adapter of 14 rows: all but three, or all.
std::shared_ptr<nn::LowRankAdapter> two_pieces(std::int64_t in, bool all = false, float second_scale = 2.0f) {
  std::vector<nn::LowRankPiece> pieces{{"q_proj", 0, all ? 9 : 6, 0, 3, 0.5f}, {"v_proj", 9, 5, 0, 2, second_scale}};
  return std::make_shared<nn::LowRankAdapter>(std::move(pieces), in, nn::ParameterOptions{});
}

TEST(LoraLinear, GradientsMatchFiniteDifferences) {
  for (const auto& [dropout, all] : {std::pair{0.0, false}, {0.5, false}, {0.0, true}, {0.5, true}}) {
    const auto adapter = two_pieces(8, all);
    const LoraLinear kernel(nn::high_precision_linear_kernel(), adapter, {dropout, {.seed = 1, .stream = 2}});
    EXPECT_EQ(kernel.name(), "high precision + lora r3/r2");
    nn::Parameter weight = nn::make_parameter({14, 8}, {});
    fill(weight, 9, 1.0f);
    const auto own = adapter->parameters();
    const auto function = [&](const std::vector<Variable>& in) {
      for (std::size_t i = 0; i < own.size(); ++i) own[i].parameter->variable = in[i + 1];
      weight.variable = in[4];
      // Draws are those of the pass; without a tape there would be none.
      autograd::Tape* tape = autograd::Tape::current();
      autograd::Tape other;
      std::optional<autograd::TapeScope> scope;
      if (tape == nullptr) scope.emplace(other);
      return kernel.apply(in[0], weight, {});
    };
    const auto matrix = [](std::int64_t r, std::int64_t c, std::uint64_t s) {
      return random_matrix(r, c, s, 1.0f, DType::f32);
    };
    const auto result = autograd::gradcheck(
        function, {matrix(7, 8, 1), matrix(5, 8, 2), matrix(all ? 9 : 6, 3, 3), matrix(5, 2, 4), matrix(14, 8, 5)});
    EXPECT_TRUE(result.ok) << result.failure;
    EXPECT_LT(result.worst, 1e-3);
  }
}

// Scales that are equal, over a frozen weight: base and update are one product. The second use of x adds to its
// gradient.
TEST(LoraLinear, SingleGemmGradientsMatchFiniteDifferences) {
  for (const bool all : {false, true}) {
    const auto adapter = two_pieces(8, all, 0.5f);
    const LoraLinear kernel(nn::high_precision_linear_kernel(), adapter, {});
    nn::Parameter weight = nn::make_parameter({14, 8}, {});
    fill(weight, 9, 1.0f);
    weight.variable = Variable(weight.variable.value());
    ASSERT_FALSE(weight.weight().requires_grad());
    const auto own = adapter->parameters();
    const auto matrix = [](std::int64_t r, std::int64_t c, std::uint64_t s) {
      return random_matrix(r, c, s, 1.0f, DType::f32);
    };
    const std::vector<Tensor> at{matrix(7, 8, 1), matrix(5, 8, 2), matrix(all ? 9 : 6, 3, 3), matrix(5, 2, 4)};
    const auto function = [&](const std::vector<Variable>& in) {
      for (std::size_t i = 0; i < own.size(); ++i) own[i].parameter->variable = in[i + 1];
      return autograd::add(kernel.apply(in[0], weight, {}), kernel.apply(in[0], weight, {}));
    };
    const auto result = autograd::gradcheck(function, at);
    EXPECT_TRUE(result.ok) << result.failure;
    EXPECT_LT(result.worst, 1e-3);
    // The same by a base that is not known to be a plain product, and recomputed.
    struct Other final : nn::LinearKernelWrapper {
      Other() : LinearKernelWrapper(nn::high_precision_linear_kernel()) {}
    };
    const Variable x(at[0]);
    const Tensor y = kernel.apply(x, weight, {}).value(), recomputed = kernel.recompute(x, weight, {});
    const Tensor apart = LoraLinear(std::make_shared<Other>(), adapter, {}).apply(x, weight, {}).value();
    EXPECT_EQ(0, std::memcmp(y.raw_data(), recomputed.raw_data(), y.nbytes()));
    for (std::int64_t i = 0; i < y.numel(); ++i) EXPECT_NEAR(y.data<float>()[i], apart.data<float>()[i], 1e-5);
  }
}

// After a gated unit the product writes the gradient of gate and up; where the value is recomputed, or read by two, the
// unit does.
TEST(LoraLinear, OneProductHasTheGradientsOfGateAndUp) {
  const auto adapter = two_pieces(8, true, 0.5f);
  const LoraLinear kernel(nn::high_precision_linear_kernel(), adapter, {});
  nn::Parameter weight = nn::make_parameter({14, 8}, {});
  fill(weight, 9, 1.0f);
  weight.variable = Variable(weight.variable.value());
  const auto own = adapter->parameters();
  const auto matrix = [](std::int64_t r, std::int64_t c, std::uint64_t s) {
    return random_matrix(r, c, s, 1.0f, DType::f32);
  };
  const std::vector<Tensor> at{matrix(7, 16, 1), matrix(5, 8, 2), matrix(9, 3, 3), matrix(5, 2, 4)};
  for (const GatedActivation activation : kGatedActivations)
    for (const bool twice : {false, true})
      for (const autograd::Recompute recompute : {autograd::Recompute::none, autograd::Recompute::selective}) {
        const auto function = [&](const std::vector<Variable>& in) {
          for (std::size_t i = 0; i < own.size(); ++i) own[i].parameter->variable = in[i + 1];
          const Variable inner = autograd::swiglu(in[0], {}, {}, activation), y = kernel.apply(inner, weight, {});
          return twice ? autograd::add(y, kernel.apply(inner, weight, {})) : y;
        };
        const auto result = autograd::gradcheck(function, at, {.recompute = recompute});
        EXPECT_TRUE(result.ok) << result.failure;
        EXPECT_LT(result.worst, 1e-3);
      }
}

// By the definition: y = m / |W + s B A| (W x + s B A x) + bias, with the norm as a constant in the gradients.
TEST(LoraLinear, MagnitudesScaleTheMergedWeight) {
  const std::int64_t in = 8, out = 14, tokens = 7;
  const auto adapter = std::make_shared<nn::LowRankAdapter>(
      std::vector<nn::LowRankPiece>{{"q_proj", 0, 6, 0, 3, 0.5f}, {"v_proj", 9, 5, 0, 2, 2.0f}}, in,
      nn::ParameterOptions{}, true);
  const auto own = adapter->parameters();
  ASSERT_EQ(own.size(), 5u);
  EXPECT_EQ(own[3].pieces.front().hf_name, "q_proj.lora_magnitude_vector");
  nn::Parameter weight = nn::make_parameter({out, in}, {});
  weight.variable = Variable(random_matrix(out, in, 9, 1.0f, DType::f32));
  nn::Parameter bias = nn::make_parameter({out}, {});
  cast({random_matrix(1, out, 10, 1.0f, DType::f32).view({out}), bias.variable.value()});
  for (std::size_t i = 0; i < 3; ++i) fill(*own[i].parameter, 20 + i, 1.0f);
  const LoraLinear kernel(nn::high_precision_linear_kernel(), adapter, {});
  EXPECT_EQ(kernel.name(), "high precision + dora r3/r2");
  const Tensor merged = weight.variable.value().clone();
  adapter->set_magnitudes(merged);
  const Tensor same = merged.clone();
  adapter->merge_into(same);
  adapter->add_to(merged);
  for (std::int64_t i = 0; i < out * in; ++i) EXPECT_NEAR(same.data<float>()[i], merged.data<float>()[i], 1e-5);
  for (const std::size_t i : {3, 4})
    for (std::int64_t j = 0; j < own[i].parameter->numel(); ++j)
      own[i].parameter->variable.value().data<float>()[j] *= 0.5f + 0.25f * static_cast<float>(j);

  const Tensor norms = adapter->norms(weight.variable.value());
  std::vector<float> factors(std::size_t(out), 1.0f);
  for (std::size_t i = 0; i < 2; ++i)
    for (std::int64_t j = 0; j < adapter->pieces()[i].rows; ++j) {
      const std::int64_t row = adapter->pieces()[i].row_begin + j;
      factors[std::size_t(row)] = own[3 + i].parameter->variable.value().data<float>()[j] / norms.data<float>()[row];
    }
  const Tensor x = random_matrix(tokens, in, 1, 1.0f, DType::f32), dy = random_matrix(tokens, out, 2, 1.0f, DType::f32);
  Variable input = Variable::leaf(x, DType::f32);
  autograd::Tape tape;
  Variable y;
  {
    const autograd::TapeScope scope(tape);
    y = kernel.apply(input, weight, bias.weight());
  }
  const Tensor recomputed = kernel.recompute(Variable(x), weight, bias.weight());
  y.gradient()->contribute(dy);
  tape.backward();
  std::vector<float> u(std::size_t(tokens * out)), dx(std::size_t(tokens * in));
  for (std::int64_t n = 0; n < tokens; ++n)
    for (std::int64_t row = 0; row < out; ++row) {
      float sum = 0;
      for (std::int64_t k = 0; k < in; ++k) {
        sum += x.data<float>()[n * in + k] * merged.data<float>()[row * in + k];
        dx[std::size_t(n * in + k)] +=
            dy.data<float>()[n * out + row] * factors[std::size_t(row)] * merged.data<float>()[row * in + k];
      }
      u[std::size_t(n * out + row)] = sum;
      const float expected = factors[std::size_t(row)] * sum + bias.variable.value().data<float>()[row];
      EXPECT_NEAR(y.value().data<float>()[n * out + row], expected, 1e-4);
      EXPECT_NEAR(recomputed.data<float>()[n * out + row], expected, 1e-4);
    }
  for (std::size_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(input.grad().data<float>()[i], dx[i], 1e-3);
  for (std::size_t i = 0; i < 2; ++i)
    for (std::int64_t j = 0; j < adapter->pieces()[i].rows; ++j) {
      const std::int64_t row = adapter->pieces()[i].row_begin + j;
      float sum = 0;
      for (std::int64_t n = 0; n < tokens; ++n) sum += dy.data<float>()[n * out + row] * u[std::size_t(n * out + row)];
      EXPECT_NEAR(own[3 + i].parameter->variable.grad().data<float>()[j], sum / norms.data<float>()[row], 1e-3);
    }
}

// In either order: a base that cannot add its product to the update has the update added to its output.
TEST(LoraLinear, TheOrderOfBaseAndUpdateDoesNotMatter) {
  struct Plain final : nn::LinearKernelWrapper {
    Plain() : LinearKernelWrapper(nn::high_precision_linear_kernel()) {}
    [[nodiscard]] bool supports(const nn::LinearCall& call, const nn::Parameter& w,
                                const nn::Weight& b) const override {
      return LinearKernel::supports(call, w, b);
    }
  };
  nn::Parameter weight = nn::make_parameter({14, 8}, {}), bias = nn::make_parameter({1, 14}, {});
  fill(weight, 9, 1.0f);
  fill(bias, 10, 1.0f);
  const Variable x(random_matrix(7, 8, 1, 1.0f, DType::f32));
  const nn::Weight of_bias(Variable(bias.variable.value().view({14})));
  const nn::LinearCall onto{
      .x = x, .epilogue = nn::LinearEpilogue::accumulate, .out = Tensor::zeros({7, 14}, DType::f32)};
  EXPECT_FALSE(Plain().supports(onto, weight, of_bias));
  EXPECT_THROW((void)Plain().run(onto, weight, of_bias), Error);
  for (const bool all : {false, true}) {
    const auto adapter = two_pieces(8, all);
    for (const nn::KernelParameter& own : adapter->parameters()) fill(*own.parameter, 11, 1.0f);
    const LoraLinear first(nn::high_precision_linear_kernel(), adapter, {}),
        last(std::make_shared<Plain>(), adapter, {});
    const Tensor a = first.apply(x, weight, of_bias).value(), b = last.apply(x, weight, of_bias).value();
    for (std::int64_t i = 0; i < a.numel(); ++i) EXPECT_NEAR(a.data<float>()[i], b.data<float>()[i], 2e-6);
    EXPECT_EQ(all, std::memcmp(a.raw_data(), b.raw_data(), a.nbytes()) != 0) << "which sum came first";
  }
}

TEST(LoraLinear, RecomputesItsOutputBitwise) {
  for (const bool all : {false, true}) {
    const auto adapter = two_pieces(8, all);
    for (const nn::KernelParameter& own : adapter->parameters()) fill(*own.parameter, 11, 1.0f);
    const LoraLinear kernel(nn::high_precision_linear_kernel(), adapter, {0.3, {.seed = 1, .stream = 2}});
    nn::Parameter weight = nn::make_parameter({14, 8}, {});
    fill(weight, 9, 1.0f);
    const Variable x(random_matrix(7, 8, 1, 1.0f, DType::f32));
    autograd::Tape tape;
    const autograd::TapeScope scope(tape);
    tape.set_pass(77);
    const Tensor first = kernel.apply(x, weight, {}).value(), recomputed = kernel.recompute(x, weight, {});
    EXPECT_EQ(0, std::memcmp(first.raw_data(), recomputed.raw_data(), first.nbytes()));
    tape.set_pass(78);
    const Tensor other = kernel.apply(x, weight, {}).value();
    EXPECT_NE(0, std::memcmp(first.raw_data(), other.raw_data(), first.nbytes()));
  }
}

// Rows without an adapter are copied, the others are the sum.
TEST(LowRankAdapter, TheSumInATensorOfItsOwnIsTheOneInPlace) {
  for (const bool all : {false, true}) {
    const auto adapter = two_pieces(8, all);
    for (const nn::KernelParameter& own : adapter->parameters()) fill(*own.parameter, 11, 1.0f);
    const Tensor weight = random_matrix(14, 8, 12, 1.0f, DType::f32), before = weight.clone();
    const Tensor sum = adapter->added_to(weight);
    EXPECT_EQ(0, std::memcmp(weight.raw_data(), before.raw_data(), weight.nbytes()));
    adapter->add_to(weight);
    EXPECT_EQ(0, std::memcmp(weight.raw_data(), sum.raw_data(), weight.nbytes()));
  }
}

}  // namespace
}  // namespace quench::recipes
