// An op added from outside between a norm and a low-precision layer, in the ways in which its author may go wrong: with
// the layer's request passed on to the norm, the layer has the bits and the memory of the unfused evaluation, or
// refuses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <tuple>

#include "autograd/functions.h"
#include "core/memory/allocator.h"
#include "nn/modules/linear.h"
#include "tests/recipes/float8_testing.h"

namespace quench::recipes::added_op_test {
namespace {

using namespace quench::testing;  // NOLINT: test helpers
using autograd::QuantOutputRequest;
using autograd::Recompute;
using autograd::Saved;
using autograd::Tape;
using autograd::TapeScope;
using autograd::ValueForm;
using autograd::Variable;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t kTokens = 48, kWidth = 64, kOut = 32;

// How the op makes its result.
enum class Result { fresh, copy_with_value, copy_in_place };

// Reads elements by index, like a kernel that checks no strides.
Tensor mapped(const Tensor& x, const Tensor& into, float (*map)(float x)) {
  for (std::int64_t i = 0; i < x.numel(); ++i)
    into.data<bfloat16>()[i] = bfloat16(map(static_cast<float>(x.data<bfloat16>()[i])));
  return into;
}

// y = 3x, or 5x|x| of a fresh result, which saves x.
Variable added_op(const Variable& x, Result how) {
  const MemoryScope scope(MemoryCategory::activations);
  const bool squares = how == Result::fresh;
  const auto map = squares ? [](float v) { return 5 * v * std::abs(v); } : [](float v) { return 3 * v; };
  Variable y;
  if (how == Result::fresh) {
    y = Variable(mapped(x.value(), Tensor::empty_like(x.value()), map));
  } else {
    y = x;
    if (how == Result::copy_with_value) y.set_value(Tensor::empty_like(x.value()));
    mapped(x.value(), y.value(), map);
  }
  Tape::record("added", {x}, std::array{&y}, [&] {
    return [saved = squares ? Saved(x) : Saved(), dx = x.gradient(), dy_of = y.gradient()] {
      const Tensor dy = dy_of->value(), result = Tensor::empty_like(dy);
      const Tensor kept = saved.get();
      for (std::int64_t i = 0; i < dy.numel(); ++i) {
        const float slope = kept.defined() ? 10 * std::abs(static_cast<float>(kept.data<bfloat16>()[i])) : 3.0f;
        result.data<bfloat16>()[i] = bfloat16(slope * static_cast<float>(dy.data<bfloat16>()[i]));
      }
      if (dx) dx->contribute(result);
    };
  });
  return y;
}

struct Operands {
  LinearCase c{random_matrix(kTokens, kWidth, 1), random_matrix(kOut, kWidth, 2, 0.2f),
               random_matrix(kTokens, kOut, 3)};
  Tensor norm = random_matrix(1, kWidth, 4).view({kWidth});
};

struct Outcome {
  Tensor y, dx, dnorm, dw;
  std::int64_t kept;  // bytes between the passes
};

void expect_same(const Outcome& got, const Outcome& wanted) {
  expect_same_values(got.y, wanted.y, "y");
  expect_same_values(got.dx, wanted.dx, "dx");
  expect_same_values(got.dnorm, wanted.dnorm, "gradient of the norm's weight");
  expect_same_values(got.dw, wanted.dw, "dw");
}

// norm -> added op -> layer -> added op, the norm asked by `request`.
Outcome run(const nn::LinearKernel& kernel, const Operands& o, Recompute level, Result how,
            const std::function<QuantOutputRequest(const nn::Parameter&)>& request) {
  nn::Parameter norm, weight;
  norm.variable = Variable::leaf(o.norm);
  weight.variable = Variable::leaf(o.c.w);
  const Variable x = Variable::leaf(o.c.x);
  Tape tape(level);
  const std::int64_t before = Allocator::of({}).stats().current;
  Variable y;
  {
    const TapeScope scope(tape);
    Variable normed = autograd::rms_norm(x, norm.weight(), 1e-5f, request(weight));
    Variable mixed = added_op(normed, how);
    normed = Variable();
    EXPECT_EQ(mixed.fused().form(), ValueForm::stored);
    EXPECT_FALSE(mixed.fused().quant_outputs().wanted()) << "outputs of the norm's result";
    EXPECT_EQ(mixed.fused().recompute(), nullptr);
    y = added_op(kernel.apply(mixed, weight, {}), Result::fresh);
  }
  const std::int64_t kept = Allocator::of({}).stats().current - before;
  const Tensor value = y.value();
  y.gradient()->contribute(o.c.dy);
  tape.backward();
  return {value, x.grad(), norm.variable.grad(), weight.variable.grad(), kept};
}

QuantOutputRequest nothing(const nn::Parameter&) {
  return {};
}

class AddedOp : public ::testing::TestWithParam<std::string_view> {};

TEST_P(AddedOp, HasBitsAndMemoryOfTheUnfusedEvaluation) {
  const Operands o;
  const auto kernel = make_kernel(GetParam(), o.c, {});
  const auto asked = [&](const nn::Parameter& weight) { return kernel->input_quant_request(weight); };
  (void)run(*kernel, o, Recompute::none, Result::fresh, asked);  // the kernel makes what it keeps of the weight
  for (const Result how : {Result::fresh, Result::copy_with_value, Result::copy_in_place}) {
    std::array<std::int64_t, 2> kept{};
    for (const Recompute level : {Recompute::none, Recompute::selective}) {
      SCOPED_TRACE(::testing::Message() << static_cast<int>(how) << static_cast<int>(level));
      const Outcome unfused = run(*kernel, o, level, how, nothing), fused = run(*kernel, o, level, how, asked);
      expect_same(fused, unfused);
      EXPECT_EQ(fused.kept, unfused.kept);
      kept[level == Recompute::selective ? 1 : 0] = fused.kept;
    }
    // The norm's result is stored once, for the op that saves it, or recomputed.
    const std::int64_t saved = how == Result::fresh ? kTokens * kWidth * std::int64_t{sizeof(bfloat16)} : 0;
    EXPECT_EQ(kept[0] - kept[1], saved);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AddedOp,
                         ::testing::Values("float8_tensorwise", "float8_rowwise", "float8_rowwise_with_gw_hp", "mxfp8"),
                         [](const auto& entry) { return std::string(entry.param); });

// Under delayed scaling a norm leaves its value out, and records its amax for the layer: neither reaches another op.
class AddedOpUnderDelayedScaling : public ::testing::Test {
 protected:
  void SetUp() override {
    scaling_->allocate(Device{});
    (void)run_linear(*kernel_, o_.c);
    const float* values = scaling_->recorded().data<float>();
    scaling_->observe({values, static_cast<std::size_t>(scaling_->recorded().numel())});
    scaling_->advance();
  }
  // The request of a layer that alone reads the value, or not.
  [[nodiscard]] auto asked(bool value_needed) const {
    return [this, value_needed](const nn::Parameter& weight) {
      QuantOutputRequest request = kernel_->input_quant_request(weight);
      request.value_needed = value_needed;
      return request;
    };
  }

  const Operands o_;
  const std::shared_ptr<DelayedScaling> scaling_ =
      std::make_shared<DelayedScaling>(DelayedScalingOptions{.history = 2});
  const std::shared_ptr<const nn::LinearKernel> kernel_ =
      make_kernel("float8_tensorwise", o_.c, {}, {.delayed_scaling = scaling_});
};

TEST_F(AddedOpUnderDelayedScaling, ReadsNoValueThatWasLeftOut) {
  for (const Recompute level : {Recompute::none, Recompute::selective})
    EXPECT_THAT([&] { (void)run(*kernel_, o_, level, Result::fresh, asked(false)); },
                ThrowsMessage<Error>(HasSubstr("request it with QuantOutputRequest::value_needed")));
}

TEST_F(AddedOpUnderDelayedScaling, RecordsNoAmaxOfAnotherValue) {
  EXPECT_THAT([&] { (void)run(*kernel_, o_, Recompute::none, Result::fresh, asked(true)); },
              ThrowsMessage<Error>(HasSubstr("the producer of another value recorded its amax")));
  // The layer runs where the norm is asked for nothing.
  scaling_->discard();
  const Outcome again = run(*kernel_, o_, Recompute::none, Result::fresh, nothing);
  const float recorded = scaling_->recorded().data<float>()[0];
  scaling_->discard();
  expect_same(run(*kernel_, o_, Recompute::selective, Result::fresh, nothing), again);
  EXPECT_EQ(scaling_->recorded().data<float>()[0], recorded);
}

// An op may read a norm's result as a constant: the gradient of its weight waits for no backward function that does not
// run.
TEST(AddedOpWithoutInputGradient, GetsTheRecomputedValue) {
  const Operands o;
  const auto weight_gradient = [&](Recompute level, bool with_sum) {
    const Variable x = Variable::leaf(o.c.x), norm = Variable::leaf(o.norm);
    const Variable own = Variable::leaf(Tensor::zeros({kTokens, kWidth}, DType::bf16));
    Tape tape(level);
    Variable sum, y(Tensor::zeros({1}, DType::f32));
    {
      const TapeScope scope(tape);
      Variable normed;
      if (with_sum)
        std::tie(sum, normed) = autograd::add_rms_norm(x, x, norm, 1e-5f);
      else
        normed = autograd::rms_norm(x, norm, 1e-5f);
      Tape::record("probe", {own}, std::array{&y}, [&] {
        return [saved = Saved(normed), dw = own.gradient()] {
          dw->begin_use();
          const auto finish = [dw](const Tensor& value) {
            dw->contribute(value);
            dw->end_use();
          };
          if (!saved.defer(finish)) finish(saved.get());
        };
      });
    }
    if (with_sum) sum.gradient()->contribute(o.c.x);
    tape.backward(y);
    return own.grad();
  };
  for (const bool with_sum : {false, true}) {
    const Tensor wanted = weight_gradient(Recompute::none, with_sum);
    ASSERT_TRUE(wanted.defined());
    const Tensor got = weight_gradient(Recompute::selective, with_sum);
    ASSERT_TRUE(got.defined()) << with_sum;
    expect_same_values(got, wanted, "dw");
  }
}

}  // namespace
}  // namespace quench::recipes::added_op_test
