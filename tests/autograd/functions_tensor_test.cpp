#include "autograd/functions_tensor.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "autograd/functions.h"
#include "autograd/gradcheck.h"
#include "core/ops/elementwise.h"
#include "core/ops/loss/cross_entropy.h"
#include "tests/autograd/operands.h"
#include "tests/seams/refusal.h"

namespace quench::autograd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::randn;
using testing::refusal;

using Differentiable = std::function<Variable(const std::vector<Variable>&)>;

// Gradients against finite differences; and the arguments are as they were, after the forward and backward pass.
void expect_checked(const Differentiable& function, const std::vector<Tensor>& inputs) {
  const GradcheckResult result = gradcheck(function, inputs);
  EXPECT_TRUE(result.ok) << result.failure;
  std::vector<Variable> leaves;
  for (const Tensor& input : inputs) leaves.push_back(Variable::leaf(input.clone()));
  Tape tape;
  {
    const TapeScope scope(tape);
    const Variable y = function(leaves);
    const Tensor dy = randn(y.value().shape(), 90), old_dy = dy.clone(), old_y = y.value().clone();
    y.gradient()->contribute(dy);
    tape.backward();
    EXPECT_EQ(std::memcmp(dy.raw_data(), old_dy.raw_data(), dy.nbytes()), 0) << "the gradient was written";
    EXPECT_EQ(std::memcmp(y.value().raw_data(), old_y.raw_data(), old_y.nbytes()), 0) << "the result was written";
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(std::memcmp(leaves[i].value().raw_data(), inputs[i].raw_data(), inputs[i].nbytes()), 0)
        << "input " << i << " was written";
  }
}

std::vector<float> elements(const Variable& x) {
  const float* data = x.value().data<float>();
  return {data, data + x.value().numel()};
}

Variable constant(const Shape& shape, const std::vector<float>& values) {
  return Variable(Tensor::from_values<float>(shape, values));
}

TEST(TensorFunctions, MulGradients) {
  expect_checked([](const auto& in) { return mul(in[0], in[1]); }, {randn({3, 4}, 1), randn({3, 4}, 2)});
  expect_checked([](const auto& in) { return mul(in[0], in[1]); }, {randn({2, 3, 5}, 1), randn({2, 3, 5}, 2)});
  expect_checked([](const auto& in) { return mul(in[0], in[0]); }, {randn({7}, 1)});
}

TEST(TensorFunctions, MulGradientsOfOneFactorPerColumn) {
  expect_checked([](const auto& in) { return mul(in[0], in[1]); }, {randn({6, 4}, 1), randn({4}, 2)});
  expect_checked([](const auto& in) { return mul(in[0], in[1]); }, {randn({2, 3, 5}, 1), randn({5}, 2)});
  EXPECT_EQ(elements(mul(constant({2, 2}, {1, 2, 3, 4}), constant({2}, {10, 100}))),
            (std::vector<float>{10, 200, 30, 400}));
}

TEST(TensorFunctions, MatmulGradientsOfEveryTransposition) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      SCOPED_TRACE(fmt::format("transpose_a {} transpose_b {}", ta, tb));
      expect_checked([=](const auto& in) { return matmul(in[0], in[1], {.transpose_a = ta, .transpose_b = tb}); },
                     {randn(ta ? Shape{5, 3} : Shape{3, 5}, 1), randn(tb ? Shape{4, 5} : Shape{5, 4}, 2)});
    }
  expect_checked([](const auto& in) { return matmul(in[0], in[0], {.transpose_b = true}); }, {randn({3, 5}, 1)});
  EXPECT_EQ(elements(matmul(constant({1, 2}, {1, 2}), constant({2, 2}, {1, 2, 3, 4}))), (std::vector<float>{7, 10}));
}

TEST(TensorFunctions, SoftmaxGradients) {
  expect_checked([](const auto& in) { return softmax(in[0]); }, {randn({4, 7}, 1)});
  expect_checked([](const auto& in) { return softmax(in[0]); }, {randn({2, 3, 5}, 1)});
  expect_checked([](const auto& in) { return softmax(in[0]); }, {randn({6}, 1)});
}

TEST(TensorFunctions, GeluGradientsOfBothForms) {
  for (const GeluForm form : kGeluForms)
    expect_checked([=](const auto& in) { return gelu(in[0], form); }, {randn({3, 4, 5}, 1, 1.5f)});
}

TEST(TensorFunctions, MeanGradients) {
  for (const Shape& shape : {Shape{5}, Shape{4, 6}, Shape{2, 3, 4}})
    expect_checked([](const auto& in) { return mean(in[0]); }, {randn(shape, 1)});
  expect_checked([](const auto& in) { return mean_rows(in[0]); }, {randn({5, 3}, 1)});
  const Variable x = constant({2, 3}, {1, 2, 3, 5, 6, 7});
  EXPECT_EQ(elements(mean(x)), (std::vector<float>{4}));
  EXPECT_EQ(mean_rows(x).value().shape(), (Shape{1, 3}));
  EXPECT_EQ(elements(mean_rows(x)), (std::vector<float>{3, 4, 5}));
}

TEST(TensorFunctions, CrossEntropyGradients) {
  const std::vector<std::int32_t> classes = {2, kIgnoreLabel, 0, 1};
  const Tensor labels = Tensor::from_values<std::int32_t>({4}, classes);
  expect_checked([&](const auto& in) { return cross_entropy(in[0], labels, 0.5f); }, {randn({4, 3}, 1)});
  // A gradient other than 1 reaches the logits.
  expect_checked([&](const auto& in) { return scale(cross_entropy(in[0], labels), 3.0f); }, {randn({4, 3}, 2)});
  const Tensor first = Tensor::from_values<std::int32_t>({1}, std::vector<std::int32_t>{0});
  EXPECT_NEAR(elements(cross_entropy(constant({1, 2}, {1, 3}), first)).at(0), std::log1p(std::exp(2.0f)), 1e-6);
  EXPECT_THAT(refusal([&] {
                (void)cross_entropy(Variable(randn({4, 3}, 1)), first);
              }),
              AllOf(HasSubstr("cross_entropy"), HasSubstr("i32[1]")));
}

TEST(TensorFunctions, SliceGradientsAlongEveryAxis) {
  const Tensor x = randn({3, 4, 5}, 1);
  for (const int axis : {0, 1, 2, -1, -3}) {
    SCOPED_TRACE(axis);
    expect_checked([=](const auto& in) { return slice(in[0], axis, 1, 2); }, {x});
  }
  const Variable matrix = constant({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(elements(slice(matrix, 1, 1, 2)), (std::vector<float>{2, 3, 5, 6}));
  EXPECT_EQ(elements(slice(matrix, -2, 1, 1)), (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(slice(matrix, 1, 3, 0).value().shape(), (Shape{2, 0}));
}

TEST(TensorFunctions, SlicesThatOverlapAddTheirGradients) {
  expect_checked([](const auto& in) { return mul(slice(in[0], 1, 0, 3), slice(in[0], 1, 1, 3)); }, {randn({3, 4}, 1)});
}

TEST(TensorFunctions, ConcatGradientsAlongEveryAxis) {
  for (const int axis : {0, 1, 2, -1}) {
    SCOPED_TRACE(axis);
    Shape other{2, 3, 4};
    other[axis] = 5;
    expect_checked(
        [=](const auto& in) {
          return concat({in[0], in[1], in[0]}, axis);
        },
        {randn({2, 3, 4}, 1), randn(other, 2)});
  }
  const Variable a = constant({2, 1}, {1, 2}), b = constant({2, 2}, {3, 4, 5, 6});
  EXPECT_EQ(elements(concat({a, b}, 1)), (std::vector<float>{1, 3, 4, 2, 5, 6}));
  EXPECT_EQ(elements(concat({a, constant({1, 1}, {9})}, 0)), (std::vector<float>{1, 2, 9}));
}

TEST(TensorFunctions, SliceOfConcatEqualsTheInput) {
  const Variable a(randn({3, 2}, 1)), b(randn({3, 4}, 2));
  EXPECT_EQ(elements(slice(concat({a, b}, 1), 1, 2, 4)), elements(b));
}

TEST(TensorFunctions, ConstantsGetNoGradientAndTheOthersStillDo) {
  const Variable fixed(randn({3, 3}, 1)), leaf = Variable::leaf(randn({3, 3}, 2));
  Tape tape;
  const TapeScope scope(tape);
  const Variable y = concat({mul(fixed, leaf), matmul(leaf, fixed), fixed}, 0);
  tape.backward(mean(y));
  EXPECT_TRUE(leaf.gradient()->has_value());
  EXPECT_FALSE(fixed.requires_grad());
}

TEST(TensorFunctions, Bf16ResultsEqualRoundedF32Results) {
  const auto in_bf16 = [](const Tensor& x) {
    const Tensor y = Tensor::empty(x.shape(), DType::bf16);
    cast({x, y});
    return y;
  };
  const auto widened = [](const Tensor& x) {
    const Tensor y = Tensor::empty(x.shape(), DType::f32);
    cast({x, y});
    return y;
  };
  const std::vector<Differentiable> functions{
      [](const auto& in) { return mul(in[0], in[1]); },
      [](const auto& in) { return mul(in[0], in[2]); },
      [](const auto& in) { return matmul(in[0], in[1], {.transpose_b = true}); },
      [](const auto& in) { return softmax(in[0]); },
      [](const auto& in) { return gelu(in[0]); },
      [](const auto& in) { return gelu(in[0], GeluForm::exact); },
      [](const auto& in) { return mean(in[0]); },
      [](const auto& in) { return mean_rows(in[0]); },
      [](const auto& in) { return slice(in[0], 1, 2, 5); },
      [](const auto& in) {
        return concat({in[0], in[1]}, 1);
      },
  };
  for (std::size_t f = 0; f < functions.size(); ++f) {
    SCOPED_TRACE(f);
    std::vector<Variable> narrow, wide;
    for (const Tensor& x : {randn({5, 16}, 1), randn({5, 16}, 2), randn({16}, 3)}) {
      narrow.push_back(Variable::leaf(in_bf16(x)));
      wide.push_back(Variable::leaf(widened(narrow.back().value())));
    }
    const auto run = [&](const std::vector<Variable>& in) {
      Tape tape;
      const TapeScope scope(tape);
      const Variable y = functions[f](in);
      Tensor dy = randn(y.value().shape(), 9);
      if (y.value().dtype() == DType::bf16) dy = in_bf16(dy);
      y.gradient()->contribute(dy);
      tape.backward();
      return y;
    };
    const Variable y = run(narrow), expected = run(wide);
    const auto expect_near = [](const Tensor& actual, const Tensor& near) {
      ASSERT_EQ(actual.shape(), near.shape());
      const Tensor values = actual.dtype() == DType::f32 ? actual : Tensor::empty(actual.shape(), DType::f32);
      if (actual.dtype() != DType::f32) cast({actual, values});
      for (std::int64_t i = 0; i < near.numel(); ++i)
        EXPECT_NEAR(values.data<float>()[i], near.data<float>()[i], 0.03f * std::abs(near.data<float>()[i]) + 0.02f);
    };
    expect_near(y.value(), expected.value());
    for (std::size_t i = 0; i < narrow.size(); ++i) {
      ASSERT_EQ(narrow[i].grad().defined(), wide[i].grad().defined());
      if (narrow[i].grad().defined()) expect_near(narrow[i].grad(), wide[i].grad());
    }
  }
}

TEST(TensorFunctions, RefusalsNameFunctionAndShapes) {
  const Variable x(randn({3, 4}, 1)), y(randn({2, 5}, 2)), none;
  const Variable ids(Tensor::zeros({3, 4}, DType::i32)), half(Tensor::zeros({3, 4}, DType::bf16));
  const Variable meta(Tensor::empty({3, 4}, DType::f32, Device{DeviceType::meta}));
  const Variable gaps(x.value().transpose(0, 1));
  const auto both = [](const char* function) {
    return AllOf(HasSubstr(function), HasSubstr("f32[3, 4]"), HasSubstr("f32[2, 5]"));
  };
  EXPECT_THAT(refusal([&] { (void)mul(x, y); }), both("mul"));
  EXPECT_THAT(refusal([&] { (void)matmul(x, y); }), both("matmul"));
  EXPECT_THAT(refusal([&] { (void)concat({x, y}, 0); }), both("concat"));
  EXPECT_THAT(refusal([&] { (void)mul(x, half); }), AllOf(HasSubstr("mul"), HasSubstr("bf16[3, 4]")));
  EXPECT_THAT(refusal([&] { (void)matmul(x, half, {.transpose_b = true}); }),
              AllOf(HasSubstr("matmul"), HasSubstr("bf16[3, 4] on cpu, transposed")));
  EXPECT_THAT(refusal([&] { (void)concat({x, half}, 0); }), AllOf(HasSubstr("concat"), HasSubstr("bf16[3, 4]")));
  EXPECT_THAT(refusal([&] { (void)mul(x, meta); }), AllOf(HasSubstr("mul"), HasSubstr("meta")));
  EXPECT_THAT(refusal([&] { (void)matmul(x, meta, {.transpose_b = true}); }), HasSubstr("meta"));
  EXPECT_THAT(refusal([&] { (void)concat({x, meta}, 0); }), AllOf(HasSubstr("concat"), HasSubstr("meta")));
  EXPECT_THAT(refusal([&] { (void)concat({}, 0); }), HasSubstr("concat: no parts"));
  EXPECT_THAT(refusal([&] { (void)slice(x, 2, 0, 1); }), AllOf(HasSubstr("slice"), HasSubstr("no axis 2")));
  EXPECT_THAT(refusal([&] { (void)slice(x, 1, 3, 2); }), AllOf(HasSubstr("f32[3, 4]"), HasSubstr("3 to 5")));
  EXPECT_THAT(refusal([&] { (void)slice(x, 1, -1, 2); }), HasSubstr("-1 to 1"));
  EXPECT_THAT(refusal([&] { (void)mean_rows(Variable(randn({4}, 1))); }),
              AllOf(HasSubstr("mean_rows"), HasSubstr("f32[4]")));
  EXPECT_THAT(refusal([&] {
                (void)mean(Variable(randn({0, 4}, 1)));
              }),
              AllOf(HasSubstr("mean"), HasSubstr("f32[0, 4]")));
  const std::vector<std::pair<const char*, Differentiable>> unary{
      {"softmax", [](const auto& in) { return softmax(in[0]); }},
      {"gelu", [](const auto& in) { return gelu(in[0]); }},
      {"mean", [](const auto& in) { return mean(in[0]); }},
      {"mean_rows", [](const auto& in) { return mean_rows(in[0]); }},
      {"slice", [](const auto& in) { return slice(in[0], 0, 0, 1); }},
      {"concat", [](const auto& in) { return concat({in[0]}, 0); }},
      {"mul", [](const auto& in) { return mul(in[0], in[0]); }},
  };
  for (const auto& [name, function] : unary) {
    EXPECT_THAT(refusal([&, &run = function] { (void)run({ids}); }), AllOf(HasSubstr(name), HasSubstr("i32[3, 4]")));
    EXPECT_THAT(refusal([&, &run = function] { (void)run({none}); }), AllOf(HasSubstr(name), HasSubstr("undefined")));
    EXPECT_THAT(refusal([&, &run = function] { (void)run({gaps}); }), AllOf(HasSubstr(name), HasSubstr("contiguous")));
  }
}

}  // namespace
}  // namespace quench::autograd
