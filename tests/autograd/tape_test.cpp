#include "autograd/tape.h"

#include <gtest/gtest.h>

#include "autograd/functions.h"
#include "autograd/recompute.h"
#include "autograd/swiglu.h"
#include "core/memory/allocator.h"
#include "tests/autograd/operands.h"
#include "tests/core/ops/op_testing.h"

namespace quench::autograd {
namespace {

using testing::floats;
using testing::randn;

// Two linears with SwiGLU between and a norm in front, then the head's loss: a small network with everything shared.
struct Net {
  Variable norm = Variable::leaf(Tensor::from_values<float>({8}, std::vector<float>(8, 1.0f)));
  Variable up = Variable::leaf(randn({12, 8}, 1));
  Variable down = Variable::leaf(randn({8, 6}, 2));
  Variable head = Variable::leaf(randn({5, 8}, 3));
  Tensor labels = Tensor::from_values<std::int32_t>({4}, std::vector<std::int32_t>{0, 3, -100, 2});

  [[nodiscard]] std::vector<Variable> leaves() const { return {norm, up, down, head}; }

  [[nodiscard]] Variable block(const Variable& x) const {
    return add(x, linear(swiglu(linear(rms_norm(x, norm, 1e-5f), up)), down));
  }

  std::vector<std::vector<float>> run(const Tensor& x, Recompute mode) const {
    for (const Variable& leaf : leaves()) leaf.gradient()->reset();
    Tape tape(mode);
    Variable loss;
    {
      const TapeScope scope(tape);
      Variable h(x);
      for (int i = 0; i < 3; ++i) {
        h = mode == Recompute::full
                ? recompute([this](const std::vector<Variable>& in) { return std::vector{block(in[0])}; }, {h})[0]
                : block(h);
      }
      loss = lm_head_loss(h, head, labels, 1.0f / 3);
    }
    tape.backward(loss);
    EXPECT_EQ(tape.size(), 0u);
    std::vector<std::vector<float>> gradients{floats(loss.value())};
    for (const Variable& leaf : leaves()) gradients.push_back(floats(leaf.grad()));
    return gradients;
  }
};

TEST(Tape, RecomputeLevelsGiveTheSameBits) {
  const Net net;
  const Tensor x = randn({4, 8}, 5);
  const auto plain = net.run(x, Recompute::none);
  EXPECT_EQ(plain, net.run(x, Recompute::selective));
  EXPECT_EQ(plain, net.run(x, Recompute::full));
}

TEST(Tape, LeafGradientsAccumulateUntilReset) {
  const Variable w = Variable::leaf(randn({3, 4}, 1));
  const Variable x(randn({2, 4}, 2));
  const auto step = [&] {
    Tape tape;
    Variable y;
    {
      const TapeScope scope(tape);
      y = linear(x, w);
    }
    Tensor ones = Tensor::empty_like(y.value());
    std::fill_n(ones.data<float>(), ones.numel(), 1.0f);
    y.gradient()->contribute(ones);
    tape.backward();
  };
  step();
  const auto once = floats(w.grad());
  const void* buffer = w.grad().raw_data();
  step();
  const auto twice = floats(w.grad());
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_FLOAT_EQ(twice[i], 2 * once[i]);
  w.gradient()->reset();
  EXPECT_FALSE(w.grad().defined());
  step();
  EXPECT_EQ(floats(w.grad()), once);
  EXPECT_EQ(w.grad().raw_data(), buffer) << "the buffer is reused, not allocated anew";
}

TEST(Tape, NothingIsRecordedWithoutTapeOrInsideNoGrad) {
  const Variable w = Variable::leaf(randn({3, 4}, 1));
  const Variable x(randn({2, 4}, 2));
  EXPECT_FALSE(linear(x, w).requires_grad());
  Tape tape;
  const TapeScope scope(tape);
  {
    const NoGrad no_grad;
    EXPECT_FALSE(linear(x, w).requires_grad());
  }
  EXPECT_FALSE(linear(x, x.detach()).requires_grad());
  EXPECT_EQ(tape.size(), 0u);
  EXPECT_TRUE(linear(x, w).requires_grad());
  EXPECT_EQ(tape.size(), 1u);
}

TEST(Tape, ReadyHooksFireOnceAfterTheLastUse) {
  const Variable w = Variable::leaf(randn({4, 4}, 1));
  int fired = 0;
  w.gradient()->on_ready([&] { ++fired; });
  Tape tape;
  Variable y;
  {
    const TapeScope scope(tape);
    y = linear(linear(linear(Variable(randn({2, 4}, 2)), w), w), w);
    Tape::mark([&] { EXPECT_EQ(fired, 0) << "a mark at the end runs first"; });
  }
  Tensor ones = Tensor::zeros({2, 4}, DType::f32);
  y.gradient()->contribute(ones);
  tape.backward();
  EXPECT_EQ(fired, 1);
}

TEST(Tape, ReadyHooksCountUsesInsideRecomputeRegions) {
  const Net net;
  int fired = 0;
  net.up.gradient()->on_ready([&] { ++fired; });
  (void)net.run(randn({4, 8}, 5), Recompute::full);
  EXPECT_EQ(fired, 1);
}

TEST(Tape, UnusedBranchesAreSkipped) {
  const Variable w = Variable::leaf(randn({4, 4}, 1)), unused = Variable::leaf(randn({4, 4}, 2));
  Tape tape;
  Variable y;
  {
    const TapeScope scope(tape);
    const Variable x(randn({2, 4}, 3));
    y = linear(x, w);
    (void)linear(x, unused);
  }
  y.gradient()->contribute(y.value().clone());
  tape.backward();
  EXPECT_TRUE(w.grad().defined());
  EXPECT_FALSE(unused.grad().defined());
}

TEST(Tape, SelectiveAndFullRecomputeHoldLessMemory) {
  const Net net;
  const Tensor x = randn({256, 8}, 5);
  const auto held = [&](Recompute mode) {
    Tape tape(mode);
    const TapeScope scope(tape);
    const std::int64_t before = Allocator::of({}).stats().current;
    Variable h(x);
    for (int i = 0; i < 3; ++i)
      h = mode == Recompute::full
              ? recompute([&](const std::vector<Variable>& in) { return std::vector{net.block(in[0])}; }, {h})[0]
              : net.block(h);
    return Allocator::of({}).stats().current - before;
  };
  const auto none = held(Recompute::none), selective = held(Recompute::selective), full = held(Recompute::full);
  EXPECT_LT(selective, none);
  EXPECT_LT(full, selective);
}

// The gradients of a layer's intermediate values count as its part, in the backward pass too.
TEST(Tape, BackwardRunsInTheMemoryPartOfForward) {
  Variable x = Variable::leaf(Tensor::zeros({4}, DType::f32)), y(Tensor::zeros({4}, DType::f32));
  std::vector<MemoryPart> seen;
  Tape tape;
  {
    const TapeScope scope(tape);
    const MemoryPartScope part(MemoryPart::attention);
    Tape::record("probe", {x}, std::array{&y}, [&] { return [&seen] { seen.push_back(MemoryPartScope::current()); }; });
    y.gradient()->contribute(Tensor::zeros({4}, DType::f32));
  }
  tape.backward();
  EXPECT_EQ(seen, std::vector{MemoryPart::attention});
  EXPECT_EQ(MemoryPartScope::current(), MemoryPart::other);
}

TEST(Tape, BackwardNeedsOneNumber) {
  Tape tape;
  Variable y;
  {
    const TapeScope scope(tape);
    y = linear(Variable(randn({2, 4}, 2)), Variable::leaf(randn({3, 4}, 1)));
  }
  EXPECT_THROW(tape.backward(y), Error);
  EXPECT_THROW(tape.backward(Variable(randn({1}, 1))), Error);
}

}  // namespace
}  // namespace quench::autograd
