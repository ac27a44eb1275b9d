// A gated op with a fused backward that autograd/ does not know: only its header declares it.

#include "autograd/fused_backward.h"

#include <gtest/gtest.h>

#include <array>

#include "autograd/functions.h"
#include "autograd/gradcheck.h"
#include "autograd/swiglu.h"
#include "core/ops/gemm.h"
#include "tests/autograd/operands.h"

namespace quench::autograd {
namespace {

using testing::randn;

// out = gate * up of x [N,2I] (bilinear GLU). Backward: dgate = dout * up, dup = dout * gate.
struct BilinearBackward : FusedBackward {
  Tensor gate_up, dgate_up;
  std::shared_ptr<Gradient> din;
  std::shared_ptr<Gradient> dout;
  Tensor saved;
  int* own_runs = nullptr;

  [[nodiscard]] bool begin() override {
    if (!din) return false;
    gate_up = saved;
    dgate_up = Tensor::empty_like(saved);
    return true;
  }
};

float* row(const Tensor& t, std::int64_t r) {
  return Tensor(t).data<float>() + r * t.size(1);
}

void bilinear_backward(const Tensor& dout, const Tensor& gate_up, const Tensor& dgate_up) {
  const std::int64_t width = dout.size(1);
  for (std::int64_t r = 0; r < dout.size(0); ++r)
    for (std::int64_t c = 0; c < width; ++c) {
      row(dgate_up, r)[c] = row(dout, r)[c] * row(gate_up, r)[width + c];
      row(dgate_up, r)[width + c] = row(dout, r)[c] * row(gate_up, r)[c];
    }
}

Variable bilinear(const Variable& x, int& own_runs) {
  const Tensor in = x.value();
  Variable out(Tensor::empty({in.size(0), in.size(1) / 2}, in.dtype()));
  const std::int64_t width = out.value().size(1);
  for (std::int64_t r = 0; r < in.size(0); ++r)
    for (std::int64_t c = 0; c < width; ++c) row(out.value(), r)[c] = row(in, r)[c] * row(in, r)[width + c];
  Tape::record("bilinear", {x}, std::array{&out}, [&] {
    const auto op = std::make_shared<BilinearBackward>();
    op->din = x.gradient();
    op->dout = out.gradient();
    op->saved = in;
    op->own_runs = &own_runs;
    out.gradient()->set_fused_backward(op);
    return [op] {
      if (op->dgate_up.defined()) return op->din->contribute(op->dgate_up);
      ++*op->own_runs;
      op->dgate_up = Tensor::empty_like(op->saved);
      bilinear_backward(op->dout->value(), op->saved, op->dgate_up);
      if (op->din) op->din->contribute(op->dgate_up);
    };
  });
  return out;
}

struct Counts {
  int own = 0;    // runs of the op's own backward
  int fused = 0;  // runs within the linear layer's
};

// y = x * weight^T, whose backward computes that of `Op` too where it is offered. `contributes` before it asks.
template <class Op>
Variable fusing_linear(const Variable& x, const Tensor& weight, Counts& counts, bool contributes = false) {
  Variable y(Tensor::empty({x.value().size(0), weight.size(0)}, DType::f32));
  gemm({.a = x.value(), .b = weight, .c = y.value(), .transpose_b = true});
  Tape::record("fusing_linear", {x}, std::array{&y}, [&] {
    return [weight, contributes, shape = x.value().shape(), dx = x.gradient(), dy = y.gradient(), &counts] {
      const Tensor gradient = Tensor::empty(shape, DType::f32);
      if (contributes) dx->contribute(Tensor::zeros(shape, DType::f32));
      gemm({.a = dy->value(), .b = weight, .c = gradient});
      const auto op = dx->fused_backward<Op>();
      if (op == nullptr) return dx->contribute(gradient);
      bilinear_backward(gradient, op->gate_up, op->dgate_up);
      ++counts.fused;
      EXPECT_TRUE(dx->has_value());
      EXPECT_FALSE(dx->value().defined());
      EXPECT_EQ(dx->template fused_backward<Op>(), nullptr) << "begun once";
      EXPECT_THROW(dx->contribute(gradient), Error);
      EXPECT_THROW((void)dx->target(), Error);
    };
  });
  return y;
}

using Function = std::function<Variable(const Variable& x, Counts& counts)>;

// Counts of one backward pass, whose gradient is checked numerically in another.
Counts counts_of(const Function& function) {
  Counts counts;
  const GradcheckResult result = gradcheck([&](const auto& in) { return function(in[0], counts); }, {randn({4, 6}, 1)});
  EXPECT_TRUE(result.ok) << result.failure;
  return counts;
}

const Tensor& weight() {
  static const Tensor w = randn({5, 3}, 2);
  return w;
}

TEST(FusedBackward, OpsOutsideAutogradMayOfferOne) {
  const Counts counts = counts_of([](const auto& x, Counts& seen) {
    return fusing_linear<BilinearBackward>(bilinear(x, seen.own), weight(), seen);
  });
  EXPECT_EQ(counts.own, 0);
  EXPECT_EQ(counts.fused, 1);
}

TEST(FusedBackward, IsFoundByItsTypeOnly) {
  const Counts counts = counts_of(
      [](const auto& x, Counts& seen) { return fusing_linear<SwigluBackward>(bilinear(x, seen.own), weight(), seen); });
  EXPECT_EQ(counts.own, 1);
  EXPECT_EQ(counts.fused, 0);
}

TEST(FusedBackward, NeedsTheSoleContributionToTheGradient) {
  const Counts two = counts_of([](const auto& x, Counts& seen) {
    const Variable inner = bilinear(x, seen.own);
    return add(fusing_linear<BilinearBackward>(inner, weight(), seen),
               fusing_linear<BilinearBackward>(inner, weight(), seen));
  });
  EXPECT_EQ(two.own, 1);
  EXPECT_EQ(two.fused, 0);
  const Counts contributed = counts_of([](const auto& x, Counts& seen) {
    return fusing_linear<BilinearBackward>(bilinear(x, seen.own), weight(), seen, true);
  });
  EXPECT_EQ(contributed.own, 1);
  EXPECT_EQ(contributed.fused, 0);
}

TEST(FusedBackward, RefusedByTheOp) {
  Counts counts;
  Tape tape;
  const Variable x = Variable::leaf(randn({4, 6}, 1));
  struct Refuses final : BilinearBackward {
    [[nodiscard]] bool begin() override { return false; }
  };
  Variable y;
  const auto op = std::make_shared<Refuses>();
  {
    const TapeScope scope(tape);
    const Variable inner = bilinear(x, counts.own);
    inner.gradient()->set_fused_backward(op);
    y = fusing_linear<BilinearBackward>(inner, weight(), counts);
  }
  y.gradient()->contribute(randn({4, 5}, 3));
  tape.backward();
  EXPECT_EQ(counts.own, 1);
  EXPECT_EQ(counts.fused, 0);
  EXPECT_TRUE(x.grad().defined());
}

TEST(FusedBackward, IsNotOwnedByTheGradient) {
  Gradient gradient({2, 2}, DType::f32, Device{}, false);
  gradient.begin_use();
  auto op = std::make_shared<BilinearBackward>();
  op->saved = randn({2, 4}, 1);
  op->din = std::make_shared<Gradient>(Shape{2, 4}, DType::f32, Device{}, false);
  gradient.set_fused_backward(op);
  op.reset();
  EXPECT_EQ(gradient.fused_backward<BilinearBackward>(), nullptr);
  EXPECT_FALSE(gradient.has_value());
}

}  // namespace
}  // namespace quench::autograd
