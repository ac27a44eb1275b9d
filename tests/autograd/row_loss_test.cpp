#include "autograd/row_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <span>

#include "autograd/functions.h"
#include "tests/autograd/operands.h"

namespace quench::autograd {
namespace {

using testing::randn;

Tensor integers(const std::vector<std::int32_t>& values) {
  return Tensor::from_values<std::int32_t>({std::ssize(values)}, values);
}

// sum of w_i * loss_i^2: rows' derivatives depend on the losses.
Tensor squares(const Tensor& losses, const Tensor& value) {
  const Tensor derivatives = Tensor::empty_like(losses);
  double sum = 0;
  for (std::int64_t i = 0; i < losses.numel(); ++i) {
    const float loss = losses.data<float>()[i], weight = 0.5f - static_cast<float>(i % 3);
    sum += static_cast<double>(weight * loss * loss);
    derivatives.data<float>()[i] = 2 * weight * loss;
  }
  *Tensor(value).data<float>() = static_cast<float>(sum);
  return derivatives;
}

struct Result {
  float loss;
  Tensor dhidden, dweight;
};

Result run(const Tensor& x, const Tensor& w, const Tensor& labels, std::int64_t chunk, bool frozen) {
  const Variable hidden = Variable::leaf(x.clone());
  const Variable weight = frozen ? Variable(w.clone()) : Variable::leaf(w.clone());
  Tape tape;
  Variable loss;
  {
    const TapeScope scope(tape);
    loss = lm_head_row_loss(hidden, weight, labels, squares, {.chunk_rows = chunk});
  }
  tape.backward(loss);
  return {*loss.value().data<float>(), hidden.grad(), frozen ? Tensor() : weight.grad()};
}

TEST(RowLoss, GradientsOfALossOfAllRows) {
  const Tensor x = randn({5, 6}, 1), w = randn({7, 6}, 2), labels = integers({2, -100, 0, 4, 6});
  const auto loss_at = [&](const Tensor& a, const Tensor& b) {
    return *lm_head_row_loss(Variable(a), Variable(b), labels, squares).value().data<float>();
  };
  for (const std::int64_t chunk : {0, 1, 3}) {
    const Result trained = run(x, w, labels, chunk, false);
    const float whole = loss_at(x, w);
#if defined(__x86_64__)
    EXPECT_FLOAT_EQ(trained.loss, whole);
#else  // chunks of few rows are multiplied by another kernel: logits by sums in another order
    EXPECT_NEAR(trained.loss, whole, 4e-6f * whole);
#endif
    for (const auto& [input, gradient] : {std::pair(x, trained.dhidden), std::pair(w, trained.dweight)})
      for (std::int64_t j = 0; j < input.numel(); ++j) {
        float* value = Tensor(input).data<float>() + j;
        const float original = *value;
        *value = original + 1e-2f;
        const float up = loss_at(x, w);
        *value = original - 1e-2f;
        const float down = loss_at(x, w);
        *value = original;
        EXPECT_NEAR(gradient.data<float>()[j], (up - down) / 2e-2f, 2e-2f) << j;
      }
  }
}

TEST(RowLoss, AFrozenHeadHasTheSameGradientInOnePass) {
  const Tensor x = randn({5, 6}, 1), w = randn({7, 6}, 2), labels = integers({2, -100, 0, 4, 6});
  const Result trained = run(x, w, labels, 2, false), frozen = run(x, w, labels, 2, true);
  EXPECT_EQ(frozen.loss, trained.loss);
  for (std::int64_t j = 0; j < x.numel(); ++j)
    EXPECT_NEAR(frozen.dhidden.data<float>()[j], trained.dhidden.data<float>()[j], 1e-5f) << j;
}

TEST(RowLoss, UnitDerivativesGiveTheCrossEntropy) {
  const Tensor x = randn({4, 6}, 1), w = randn({7, 6}, 2), labels = integers({2, -100, 0, 4});
  const Variable hidden = Variable::leaf(x.clone()), plain = Variable::leaf(x.clone());
  for (const bool rows : {true, false}) {
    Tape tape;
    Variable loss;
    {
      const TapeScope scope(tape);
      loss = rows ? lm_head_row_loss(hidden, Variable(w), labels,
                                     [](const Tensor& losses, const Tensor& value) {
                                       float sum = 0;
                                       const Tensor ones = Tensor::empty_like(losses);
                                       for (std::int64_t i = 0; i < losses.numel(); ++i) {
                                         sum += losses.data<float>()[i];
                                         ones.data<float>()[i] = 1;
                                       }
                                       *Tensor(value).data<float>() = sum;
                                       return ones;
                                     })
                  : lm_head_loss(plain, Variable(w), labels, 1.0f);
    }
    tape.backward(loss);
  }
  for (std::int64_t j = 0; j < x.numel(); ++j)
    EXPECT_EQ(hidden.grad().data<float>()[j], plain.grad().data<float>()[j]) << j;
}

}  // namespace
}  // namespace quench::autograd
