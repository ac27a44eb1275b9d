#include "autograd/functions.h"

#include <gtest/gtest.h>

#include "autograd/gradcheck.h"
#include "autograd/swiglu.h"
#include "core/ops/elementwise.h"
#include "core/ops/swiglu.h"
#include "tests/autograd/operands.h"

namespace quench::autograd {
namespace {

using testing::randn;

Tensor ints(std::vector<std::int32_t> values) {
  return Tensor::from_values<std::int32_t>({static_cast<std::int64_t>(values.size())}, values);
}

void expect_gradients(const std::function<Variable(const std::vector<Variable>&)>& function,
                      const std::vector<Tensor>& inputs, const GradcheckOptions& options = {}) {
  const GradcheckResult result = gradcheck(function, inputs, options);
  EXPECT_TRUE(result.ok) << result.failure;
}

TEST(Functions, LinearGradients) {
  expect_gradients([](const auto& in) { return linear(in[0], in[1], in[2]); },
                   {randn({5, 7}, 1), randn({3, 7}, 2), randn({3}, 3)});
  expect_gradients([](const auto& in) { return linear(in[0], in[1]); }, {randn({1, 4}, 1), randn({6, 4}, 2)});
}

TEST(Functions, AddGradients) {
  expect_gradients([](const auto& in) { return add(in[0], in[1]); }, {randn({3, 4}, 1), randn({3, 4}, 2)});
  // The same variable twice: both contributions count.
  expect_gradients([](const auto& in) { return add(in[0], in[0]); }, {randn({3, 4}, 1)});
}

TEST(Functions, RmsNormGradients) {
  expect_gradients([](const auto& in) { return rms_norm(in[0], in[1], 1e-5f); },
                   {randn({4, 16}, 1), randn({16}, 2, 0.3f, 1.0f)});
}

TEST(Functions, AddRmsNormGradientsOfBothOutputs) {
  const auto function = [](const auto& in) {
    const auto [sum, y] = add_rms_norm(in[0], in[1], in[2], 1e-5f);
    return add(sum, y);
  };
  expect_gradients(function, {randn({4, 16}, 1), randn({4, 16}, 2), randn({16}, 3, 0.3f, 1.0f)});
}

TEST(Functions, AddRmsNormWithOnlyTheSumUsed) {
  expect_gradients(
      [](const auto& in) { return add(add_rms_norm(in[0], in[1], Variable(randn({8}, 3)), 1e-5f).first, in[0]); },
      {randn({2, 8}, 1), randn({2, 8}, 2)});
}

TEST(Functions, SwigluGradients) {
  expect_gradients([](const auto& in) { return swiglu(in[0]); }, {randn({4, 10}, 1)});
}

// y = x whose backward function computes SwiGLU's where it is offered, and counts that.
Variable identity(const Variable& x, int& fused) {
  Variable y(x.value());
  y.set_recompute(x.fused().recompute());
  Tape::record("identity", {x}, std::array{&y}, [&] {
    return [dx = x.gradient(), dy = y.gradient(), &fused] {
      const auto op = dx->fused_backward<SwigluBackward>();
      if (op == nullptr) return dx->contribute(dy->value());
      swiglu_backward({.dout = dy->value(), .gate_up = op->gate_up, .dgate_up = op->dgate_up, .out = {}});
      EXPECT_THROW(dx->contribute(dy->value()), Error);
      ++fused;
    };
  });
  return y;
}

TEST(Functions, SwigluIsFusedIntoTheBackwardOfItsOnlyConsumer) {
  int fused = 0;
  const Tensor x = randn({4, 10}, 1);
  expect_gradients([&](const auto& in) { return identity(swiglu(in[0]), fused); }, {x});
  EXPECT_EQ(1, std::exchange(fused, 0));
  // Not with two consumers, nor while a wgrad waits for SwiGLU's recompute.
  const auto twice = [&](const auto& in) {
    const Variable inner = swiglu(in[0]);
    return add(identity(inner, fused), identity(inner, fused));
  };
  expect_gradients(twice, {x});
  const auto waited_for = [&](const auto& in) { return linear(identity(swiglu(in[0]), fused), in[1]); };
  expect_gradients(waited_for, {x, randn({3, 5}, 2)}, {.recompute = Recompute::selective});
  EXPECT_EQ(0, fused);
}

TEST(Functions, QkNormGradients) {
  const QkvLayout layout{4, 2, 8};
  expect_gradients([&](const auto& in) { return qk_norm(in[0], in[1], in[2], layout, 1e-5f); },
                   {randn({3, layout.width()}, 1), randn({8}, 2, 0.3f, 1.0f), randn({8}, 3, 0.3f, 1.0f)});
}

TEST(Functions, RopeGradients) {
  const QkvLayout layout{2, 1, 4};
  const Tensor cos = randn({6, 2}, 9), sin = randn({6, 2}, 10);
  const Tensor positions = ints({0, 5, 2});
  // rope works in place, so it gets a copy made by a function that does not need its output.
  const auto function = [&](const auto& in) {
    return rope(add(in[0], Variable(Tensor::zeros({3, layout.width()}, DType::f32))), layout, cos, sin, positions);
  };
  expect_gradients(function, {randn({3, layout.width()}, 1)});
}

TEST(Functions, RopeGradientsOfAPartOfEachHead) {
  const QkvLayout layout{2, 1, 6};
  const Tensor cos = randn({6, 2}, 9), sin = randn({6, 2}, 10);
  const Tensor positions = ints({0, 5, 2});
  for (const bool interleaved : {false, true}) {
    const auto function = [&](const auto& in) {
      return rope(add(in[0], Variable(Tensor::zeros({3, layout.width()}, DType::f32))), layout, cos, sin, positions,
                  {.interleaved = interleaved});
    };
    const Tensor x = randn({3, layout.width()}, 1);
    expect_gradients(function, {x});
    const Tensor y = function(std::vector{Variable(x)}).value();
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const bool rotated = i % 24 < 18 && i % 6 < 4;
      EXPECT_TRUE(rotated || y.data<float>()[i] == x.data<float>()[i]) << i;
    }
  }
}

TEST(Functions, AttentionGradientsOverPackedSequences) {
  const QkvLayout layout{4, 2, 8};
  const std::vector<SequenceRange> sequences{{0, 5, 0, 5}, {5, 1, 5, 1}, {6, 7, 6, 7}};
  expect_gradients([&](const auto& in) { return attention(in[0], layout, sequences, 0.35f); },
                   {randn({13, layout.width()}, 1)}, {.step = 5e-3});
}

TEST(Functions, ConcatenatedColumns) {
  const Tensor a = randn({3, 4}, 1), b = randn({3, 2}, 2);
  const Tensor both = concatenate_columns(Variable(a), Variable(b)).value();
  for (std::int64_t row = 0; row < 3; ++row) {
    for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(both.data<float>()[row * 6 + i], a.data<float>()[row * 4 + i]);
    for (std::int64_t i = 0; i < 2; ++i) EXPECT_EQ(both.data<float>()[row * 6 + 4 + i], b.data<float>()[row * 2 + i]);
  }
  expect_gradients([](const auto& in) { return concatenate_columns(in[0], in[1]); }, {a, b});
  EXPECT_THROW((void)concatenate_columns(Variable(a), Variable(randn({2, 2}, 3))), Error);
}

TEST(Functions, JoinedLossesRunBothBackwardPasses) {
  const Tensor labels = ints({2, 0, 4});
  const Variable x = Variable::leaf(randn({3, 6}, 1)), y = Variable::leaf(randn({3, 6}, 2)),
                 weight = Variable::leaf(randn({5, 6}, 3));
  const auto gradients = [&](bool first, bool second) {
    for (const Variable& leaf : {x, y, weight}) leaf.gradient()->reset();
    Tape tape;
    Variable loss;
    {
      const TapeScope scope(tape);
      if (first) loss = lm_head_loss(x, weight, labels, 0.5f);
      if (!second) {
        tape.backward(loss);
      } else {
        const Variable other = lm_head_loss(y, weight, labels, 0.25f);
        const Variable joined = first ? join_losses(loss, other) : other;
        if (first) {
          EXPECT_EQ(joined.value().data<float>()[0], loss.value().data<float>()[0]);
        }
        tape.backward(joined);
      }
    }
    return weight.grad().clone();
  };
  const Tensor of_x = gradients(true, false), of_y = gradients(false, true), of_both = gradients(true, true);
  EXPECT_TRUE(x.gradient()->has_value() && y.gradient()->has_value());
  for (std::int64_t i = 0; i < of_both.numel(); ++i)
    EXPECT_NEAR(of_both.data<float>()[i], of_x.data<float>()[i] + of_y.data<float>()[i], 1e-6f);
}

TEST(Functions, EmbeddingGradientsWithRepeatedIds) {
  const Tensor ids = ints({2, 0, 2, 4});
  expect_gradients([&](const auto& in) { return embedding(in[0], ids); }, {randn({5, 3}, 1)});
}

TEST(Functions, LmHeadLossGradients) {
  const Tensor labels = ints({2, -100, 0, 4});
  for (const std::int64_t chunk : {0, 1, 3}) {
    const auto function = [&](const auto& in) {
      return lm_head_loss(in[0], in[1], labels, 1.0f, {.chunk_rows = chunk});
    };
    // The loss sums gradients for a unit root gradient, so the check uses the root itself, not random weights.
    const std::vector<Tensor> inputs{randn({4, 6}, 1), randn({5, 6}, 2)};
    std::vector<Variable> leaves;
    for (const Tensor& t : inputs) leaves.push_back(Variable::leaf(t.clone()));
    Tape tape;
    Variable loss;
    {
      const TapeScope scope(tape);
      loss = function(leaves);
    }
    tape.backward(loss);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      for (std::int64_t j = 0; j < inputs[i].numel(); ++j) {
        std::vector<Variable> moved{Variable(inputs[0].clone()), Variable(inputs[1].clone())};
        float* x = moved[i].value().data<float>() + j;
        const float original = *x;
        *x = original + 1e-2f;
        const float up = *function(moved).value().template data<float>();
        *x = original - 1e-2f;
        const float down = *function(moved).value().template data<float>();
        EXPECT_NEAR(leaves[i].grad().data<float>()[j], (up - down) / 2e-2f, 2e-3f) << "input " << i << " element " << j;
      }
    }
  }
}

TEST(Functions, ShapesThatDoNotFitAreRefusedByName) {
  try {
    (void)linear(Variable(randn({2, 3}, 1)), Variable(randn({4, 5}, 2)));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("[2, 3]"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace quench::autograd
