// Buffers of leaf gradients from outside, and values that deferred uses may free.

#include <gtest/gtest.h>

#include "autograd/variable.h"
#include "core/memory/storage.h"
#include "tests/autograd/operands.h"
#include "tests/core/ops/op_testing.h"

namespace quench::autograd {
namespace {

using testing::floats;

TEST(GradientBuffer, IsMadeByTheFirstContribution) {
  Gradient gradient({3}, DType::f32, Device{}, true);
  const Tensor outside = Tensor::zeros({3}, DType::f32);
  int made = 0;
  const auto make = [&] {
    ++made;
    return outside;
  };
  gradient.set_buffer(make);
  EXPECT_EQ(made, 0);
  EXPECT_FALSE(gradient.has_value());
  const Tensor one = Tensor::from_values<float>({3}, std::vector<float>{1, 2, 3});
  gradient.contribute(one);
  gradient.contribute(one);
  EXPECT_EQ(made, 1);
  EXPECT_EQ(floats(outside), (std::vector<float>{2, 4, 6}));
  // The buffer outlives a reset, and is overwritten.
  gradient.reset();
  gradient.contribute(one);
  EXPECT_EQ(made, 1);
  EXPECT_EQ(floats(outside), (std::vector<float>{1, 2, 3}));
  // Not a release.
  gradient.release();
  gradient.contribute(one);
  EXPECT_NE(gradient.value().raw_data(), outside.raw_data());
  gradient.release();
  gradient.set_buffer(make);
  gradient.release();
  gradient.contribute(one);
  EXPECT_EQ(made, 1);
}

TEST(GradientBuffer, MustFitTheGradientOfALeaf) {
  Gradient leaf({3}, DType::f32, Device{}, true), inner({3}, DType::f32, Device{}, false);
  EXPECT_THROW(inner.set_buffer([] { return Tensor::zeros({3}, DType::f32); }), Error);
  for (const Tensor& wrong : {Tensor::zeros({4}, DType::f32), Tensor::zeros({3}, DType::bf16)}) {
    leaf.set_buffer([&] { return wrong; });
    EXPECT_THROW((void)leaf.target(), Error);
    leaf.release();
  }
}

TEST(GradientBuffer, IsExclusiveOnceTakenUnlessAnotherGradientSharesIt) {
  Gradient first({3}, DType::f32, Device{}, false), second({3}, DType::f32, Device{}, false);
  first.contribute(Tensor::zeros({3}, DType::f32));
  second.contribute(first.value());
  EXPECT_FALSE(first.take_value().is_exclusive());
  EXPECT_FALSE(first.has_value());
  EXPECT_FALSE(first.take_value().defined());
  EXPECT_TRUE(second.take_value().is_exclusive());
  Gradient leaf({3}, DType::f32, Device{}, true);
  EXPECT_THROW((void)leaf.take_value(), Error);
}

TEST(RecomputeHandle, TheLastDeferredUseMayFreeTheValue) {
  RecomputeHandle handle([] { return Tensor(); }, true);
  std::weak_ptr<Storage> storage;
  std::vector<bool> freed;
  const auto use = [&](FusedValue value) {
    EXPECT_TRUE(value.defined());
    value = {};
    freed.push_back(storage.expired());
  };
  EXPECT_TRUE(handle.defer({.run = use}) && handle.defer({.run = use}));
  Tensor value = Tensor::zeros({5}, DType::f32);
  storage = value.storage();
  handle.run_uses(std::move(value));
  EXPECT_EQ(freed, (std::vector<bool>{false, true}));
  EXPECT_FALSE(handle.has_uses());
}

}  // namespace
}  // namespace quench::autograd
