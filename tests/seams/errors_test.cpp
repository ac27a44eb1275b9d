// Errors of applications: a quench::Error that names tensors and shapes, or defined behaviour.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quench/nn.h"
#include "tests/seams/refusal.h"

namespace quench::testing {
namespace {

using autograd::Tape;
using autograd::TapeScope;
using autograd::Variable;
using ::testing::AllOf;
using ::testing::HasSubstr;

Variable leaf(const Shape& shape, DType dtype = DType::f32) {
  return Variable::leaf(Tensor::zeros(shape, dtype));
}

// f32 [1], recorded.
Variable loss_of(const Variable& x, const Variable& weight) {
  const Tensor labels = Tensor::zeros({x.value().size(0)}, DType::i32);
  return autograd::lm_head_loss(x, weight, labels, 1.0f);
}

struct TwoOfOneName : nn::Module {
  nn::Parameter a = nn::make_parameter({2}, {}), b = nn::make_parameter({2}, {});
  nn::Linear child{2, 2, {.init_std = 0.1f}};
  explicit TwoOfOneName(bool module) {
    add_parameter("same", a);
    if (module)
      add_module("same", child);
    else
      add_parameter("same", b);
  }
};

TEST(ApplicationErrors, NamesOfAModuleAreUnique) {
  EXPECT_THAT(refusal([] { TwoOfOneName{false}; }), HasSubstr("'same'"));
  EXPECT_THAT(refusal([] { TwoOfOneName{true}; }), HasSubstr("'same'"));
}

TEST(ApplicationErrors, AnOpWithoutKernelIsNamed) {
  struct Args {
    int unused = 0;
  };
  const KernelSlot<Args> slot("application_op");
  EXPECT_THAT(refusal([&] { slot(DeviceType::cpu, Args{}); }), HasSubstr("application_op"));
}

TEST(ApplicationErrors, DevicesDtypesAndShapesOfOneOpAgree) {
  const Device meta{DeviceType::meta};
  const Tensor f32 = Tensor::zeros({2, 3}, DType::f32), bf16 = Tensor::zeros({2, 3}, DType::bf16);
  const Tensor elsewhere = Tensor::empty({2, 3}, DType::f32, meta), square = Tensor::zeros({2, 2}, DType::f32);
  EXPECT_THAT(refusal([&] {
                add({f32, bf16, Tensor::empty_like(f32)});
              }),
              HasSubstr("add: a is f32[2, 3] on cpu, b is bf16[2, 3] on cpu"));
  EXPECT_THAT(refusal([&] {
                add({f32, elsewhere, Tensor::empty_like(f32)});
              }),
              AllOf(HasSubstr("cpu"), HasSubstr("meta")));
  EXPECT_THAT(refusal([&] { gemm({.a = f32, .b = bf16, .c = square, .transpose_b = true}); }),
              AllOf(HasSubstr("f32"), HasSubstr("bf16")));
  EXPECT_THAT(refusal([&] { gemm({.a = f32, .b = elsewhere, .c = square, .transpose_b = true}); }),
              AllOf(HasSubstr("gemm"), HasSubstr("meta")));
  EXPECT_THAT(refusal([&] { gemm({.a = f32, .b = f32, .c = square}); }), HasSubstr("f32[2, 3]"));
  EXPECT_THAT(refusal([&] { (void)autograd::linear(Variable(f32), Variable(square)); }),
              AllOf(HasSubstr("linear"), HasSubstr("f32[2, 3]"), HasSubstr("f32[2, 2]")));
  EXPECT_THAT(refusal([&] { (void)autograd::linear(Variable(f32), Variable(bf16)); }), HasSubstr("bf16"));
  EXPECT_THAT(refusal([&] { (void)autograd::linear(Variable(f32), Variable(elsewhere)); }), HasSubstr("meta"));
  EXPECT_THAT(refusal([&] { (void)autograd::linear(Variable(), Variable(f32)); }), HasSubstr("undefined"));
  EXPECT_THAT(refusal([&] { (void)autograd::add(Variable(f32), Variable()); }), HasSubstr("undefined"));
  EXPECT_THAT(refusal([&] { (void)autograd::add(Variable(f32), Variable(square)); }), HasSubstr("f32[2, 2]"));
  EXPECT_THAT(refusal([&] { (void)bf16.data<float>(); }), HasSubstr("bf16"));
}

TEST(ApplicationErrors, AnOptimizerNamesABadScale) {
  nn::Linear layer(2, 2, {.init_std = 0.1f});
  nn::AdamW optimizer(layer.parameters(), {});
  EXPECT_THAT(refusal([&] { optimizer.step(1e-3, 1, Tensor::zeros({1}, DType::bf16)); }), HasSubstr("grad_scale"));
  EXPECT_THAT(refusal([&] { optimizer.step(1e-3, 0, Tensor::zeros({1}, DType::f32)); }), HasSubstr("step"));
}

TEST(ApplicationErrors, ARootIsOneRecordedF32) {
  const Variable x = leaf({2, 3}), weight = leaf({4, 3});
  Tape tape;
  const TapeScope scope(tape);
  const Variable y = autograd::linear(x, weight);
  EXPECT_THAT(refusal([&] { tape.backward(y); }), HasSubstr("f32[2, 4]"));
  EXPECT_THAT(refusal([&] { tape.backward(Variable()); }), HasSubstr("undefined"));
  EXPECT_THAT(refusal([&] { tape.backward(Variable(Tensor::zeros({1}, DType::f32))); }), HasSubstr("f32[1]"));
}

TEST(ApplicationErrors, BackwardRunsOncePerTape) {
  const Variable x = leaf({2, 3}), weight = leaf({4, 3});
  Tape tape;
  const TapeScope scope(tape);
  const Variable loss = loss_of(x, weight);
  tape.backward(loss);
  EXPECT_TRUE(x.gradient()->has_value());
  EXPECT_THAT(refusal([&] { tape.backward(loss); }), HasSubstr("not on this tape"));
}

TEST(ApplicationErrors, AVariableOfADestroyedTapeIsAConstant) {
  const Variable x = leaf({2, 3}), first = leaf({3, 3}), second = leaf({4, 3});
  Variable hidden;
  {
    Tape gone;
    const TapeScope scope(gone);
    hidden = autograd::linear(x, first);
  }
  Tape tape;
  const TapeScope scope(tape);
  const Variable loss = loss_of(hidden, second);
  tape.backward(loss);
  EXPECT_TRUE(second.gradient()->has_value());
  EXPECT_FALSE(first.gradient()->has_value());
  int ready = 0;
  second.gradient()->on_ready([&] { ++ready; });
  first.gradient()->on_ready([&] { ++ready; });
  const Variable again = loss_of(autograd::linear(x, first), second);
  tape.backward(again);
  EXPECT_EQ(ready, 2);  // also for the weight of the destroyed tape
  Tape other;
  EXPECT_THAT(refusal([&] { other.backward(again); }), HasSubstr("not on this tape"));
}

TEST(ApplicationErrors, ATapeOutlivesTensorsAndModules) {
  Tape tape;
  const TapeScope scope(tape);
  const Variable x = leaf({2, 3});
  Variable loss;
  {
    nn::Linear layer(3, 3, {.bias = true, .init_std = 0.1f});
    nn::initialize_parameter(layer.weight(), 1);
    const Variable hidden = layer.forward(autograd::add(x, leaf({2, 3})));
    loss = loss_of(hidden, leaf({4, 3}));
  }
  tape.backward(loss);
  EXPECT_TRUE(x.gradient()->has_value());
}

}  // namespace
}  // namespace quench::testing
