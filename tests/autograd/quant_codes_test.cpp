// Float8 codes that producers write for their consumer under a given scale, on the CPU: those of a cast of the result.

#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "autograd/functions.h"
#include "autograd/swiglu.h"
#include "core/ops/quantize/quantize.h"
#include "tests/core/ops/op_testing.h"

namespace quench::autograd {
namespace {

using testing::Generator;
using testing::same_bits;

Tensor scalar(float value) {
  return Tensor::from_values<float>({}, std::array{value});
}

class QuantCodes : public ::testing::TestWithParam<DType> {
 protected:
  // Some values saturate.
  static QuantOutputRequest request(ElementFormat element = ElementFormat::e4m3) {
    QuantOutputRequest wanted;
    wanted.amax = true;
    wanted.amax_into = scalar(0);
    wanted.scale = scalar(element == ElementFormat::e4m3 ? 300.0f : 40000.0f);
    wanted.element = element;
    wanted.transposed_codes = true;
    wanted.value_needed = false;
    return wanted;
  }
  static void expect_codes_of(const Tensor& value, const QuantOutputs& outputs, const QuantOutputRequest& wanted) {
    const Float8Pair pair = cast_float8_pair(value, wanted.scale, wanted.element);
    ASSERT_EQ(outputs.codes.defined(), wanted.natural_codes);
    if (wanted.natural_codes) {
      EXPECT_TRUE(same_bits(outputs.codes.payload(), pair.natural.payload()));
    }
    if (outputs.transposed_codes.defined()) {
      EXPECT_TRUE(same_bits(outputs.transposed_codes.payload(), pair.transposed.payload()));
      EXPECT_EQ(outputs.transposed_codes.format(), pair.transposed.format());
    }
    EXPECT_TRUE(same_bits(wanted.amax_into, amax(value, Granularity::tensor)));
    EXPECT_FALSE(outputs.own_amax().defined());
  }
  Generator random_{3};
  const Tensor gate_up_ = random_.normal({48, 64}, GetParam());
};

TEST_P(QuantCodes, SwigluWritesTheCodesOfItsResult) {
  const Tensor value = swiglu(Variable(gate_up_)).value();
  for (const bool natural : {true, false})
    for (const bool needed : {true, false}) {
      QuantOutputRequest wanted = request();
      wanted.natural_codes = natural;
      wanted.value_needed = needed;
      const Variable out = swiglu(Variable(gate_up_), wanted);
      expect_codes_of(value, out.fused().quant_outputs(), wanted);
      EXPECT_TRUE(out.fused().quant_outputs().transposed_codes.defined());
      EXPECT_EQ(out.shape(), value.shape());
      EXPECT_EQ(out.fused().form(), needed ? ValueForm::stored : ValueForm::codes_only);
      if (needed) {
        EXPECT_TRUE(same_bits(out.value(), value));
        EXPECT_TRUE(same_bits(out.detach().value(), value));
        continue;
      }
      EXPECT_THROW((void)amax(out.fused().operand(), Granularity::tensor), Error) << "no op reads what is not written";
      // A detached variable would have neither the codes nor a way to the value.
      for (const auto& read : {std::function([&] { (void)out.value(); }), std::function([&] { (void)out.detach(); })})
        try {
          read();
          ADD_FAILURE() << "read";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
          EXPECT_NE(std::string(error.what()).find("the value of shape [48, 32] was left out"), std::string::npos)
              << error.what();
        }
    }
}

TEST_P(QuantCodes, RowsOffTheMultipleGetNoCodes) {
  QuantOutputRequest wanted = request();
  wanted.row_multiple = 32;
  const Variable out = swiglu(Variable(gate_up_), wanted);
  EXPECT_FALSE(out.fused().quant_outputs().has_codes());
  EXPECT_TRUE(same_bits(out.value(), swiglu(Variable(gate_up_)).value()));
  EXPECT_TRUE(same_bits(wanted.amax_into, amax(out.value(), Granularity::tensor)));
}

TEST_P(QuantCodes, NormsWriteNaturalCodesOfTheirResult) {
  const Weight weight = Weight(Variable(random_.normal({64}, GetParam())));
  const RmsNormForm form(1e-5f);
  const Tensor other = random_.normal({48, 64}, GetParam());
  QuantOutputRequest wanted = request(), of_sum = request();
  const Variable out = rms_norm(Variable(gate_up_), weight, form, wanted);
  expect_codes_of(rms_norm(Variable(gate_up_), weight, form).value(), out.fused().quant_outputs(), wanted);
  const auto [sum, normed] = add_rms_norm(Variable(gate_up_), Variable(other), weight, form, of_sum);
  expect_codes_of(add_rms_norm(Variable(gate_up_), Variable(other), weight, form).second.value(),
                  normed.fused().quant_outputs(), of_sum);
}

// Gradient of gate_up as the producer contributes it, and what a use deferred to SwiGLU's backward pass gets.
struct BackwardResult {
  Tensor gradient;
  QuantOutputs outputs;
  Tensor value;
  QuantOutputs recomputed;
};
BackwardResult run_backward(const Tensor& gate_up, const Tensor& dout, const QuantOutputRequest& wanted,
                            const QuantOutputRequest& of_use, int uses = 1) {
  BackwardResult result;
  const Variable leaf = Variable::leaf(gate_up.clone());
  Tape tape(Recompute::selective);
  const TapeScope scope(tape);
  Variable in(gate_up.clone());
  Tape::record("source", {leaf}, std::array{&in}, [&] {
    return [&result, gradient = in.gradient()] {
      result.gradient = gradient->fused().operand();
      result.outputs = gradient->fused().quant_outputs();
    };
  });
  in.gradient()->set_quant_request(wanted);
  const Variable out = swiglu(in);
  in = Variable();
  const Variable weight = Variable::leaf(Tensor::zeros({1}, DType::f32));
  Variable sink(Tensor::zeros({1}, DType::f32));
  Tape::record("sink", {out, weight}, std::array{&sink}, [&] {
    return [&result, saved = Saved(out), dout, of_use, uses, gradient = out.gradient()] {
      for (int i = 0; i < uses; ++i)
        EXPECT_TRUE(saved.defer({.run =
                                     [&result](const FusedValue& value) {
                                       result.value = value.operand();
                                       result.recomputed = value.quant_outputs();
                                     },
                                 .request = of_use}));
      gradient->contribute(dout);
    };
  });
  tape.backward(sink);
  return result;
}

TEST_P(QuantCodes, SwigluBackwardWritesTheCodesOfGradientAndRecomputedOutput) {
  const Tensor dout = random_.normal({48, 32}, GetParam());
  const BackwardResult plain = run_backward(gate_up_, dout, {}, {});
  const Tensor out = swiglu(Variable(gate_up_)).value();
  EXPECT_TRUE(same_bits(plain.value, out));
  for (const bool needed : {true, false}) {
    QuantOutputRequest wanted = request(ElementFormat::e5m2), of_use = request();
    wanted.value_needed = needed;
    of_use.amax = false;
    of_use.natural_codes = false;
    const BackwardResult coded = run_backward(gate_up_, dout, wanted, of_use);
    expect_codes_of(plain.gradient, coded.outputs, wanted);
    EXPECT_TRUE(coded.outputs.transposed_codes.defined());
    const Float8Pair pair = cast_float8_pair(out, of_use.scale, of_use.element);
    EXPECT_TRUE(same_bits(coded.recomputed.transposed_codes.payload(), pair.transposed.payload()));
    EXPECT_EQ(coded.gradient.shape(), plain.gradient.shape());
    EXPECT_EQ(coded.gradient.is_contiguous(), needed);
    EXPECT_TRUE(!needed || same_bits(coded.gradient, plain.gradient));
    // Several uses share the value.
    const BackwardResult twice = run_backward(gate_up_, dout, {}, of_use, 2);
    EXPECT_TRUE(same_bits(twice.value, out));
    EXPECT_FALSE(twice.recomputed.has_codes());
  }
}

TEST_P(QuantCodes, RopeBackwardWritesCodesInsteadOfValues) {
  const QkvLayout layout{.heads = 2, .kv_heads = 1, .head_dim = 16};
  const Tensor dout = random_.normal({48, 64}, GetParam()), table = random_.normal({48, 8}, DType::f32),
               positions = Tensor::zeros({48}, DType::i32);
  QuantOutputs outputs;
  const auto gradient_of = [&](const QuantOutputRequest& wanted, const RotationOptions& options) {
    const Variable leaf = Variable::leaf(gate_up_.clone());
    Tensor result;
    Tape tape;
    const TapeScope scope(tape);
    Variable in(gate_up_.clone());
    Tape::record("source", {leaf}, std::array{&in}, [&] {
      return [&, gradient = in.gradient()] {
        result = gradient->fused().operand();
        outputs = gradient->fused().quant_outputs();
      };
    });
    in.gradient()->set_quant_request(wanted);
    rope(in, layout, table, table, positions, options).gradient()->contribute(dout.clone());
    tape.backward();
    return result;
  };
  const Tensor plain = gradient_of({}, {});
  EXPECT_FALSE(outputs.wanted());
  QuantOutputRequest wanted = request(ElementFormat::e5m2);
  EXPECT_FALSE(gradient_of(wanted, {}).is_contiguous());
  EXPECT_TRUE(outputs.transposed_codes.defined());
  expect_codes_of(plain, outputs, wanted);
  // A value that something needs, pairs that the op does not rotate, and rows that do not fit.
  wanted = request(ElementFormat::e5m2);
  wanted.value_needed = true;
  EXPECT_TRUE(same_bits(gradient_of(wanted, {}), plain));
  EXPECT_FALSE(outputs.has_codes());
  EXPECT_TRUE(gradient_of(request(ElementFormat::e5m2), {.interleaved = true}).is_contiguous());
  EXPECT_FALSE(outputs.has_codes());
  wanted = request(ElementFormat::e5m2);
  wanted.row_multiple = 32;
  EXPECT_TRUE(same_bits(gradient_of(wanted, {}), plain));
  EXPECT_FALSE(outputs.has_codes());
}

// Another contribution makes the gradient a sum: no producer writes its codes.
TEST_P(QuantCodes, SummedGradientsGetNoCodes) {
  const Variable leaf = Variable::leaf(gate_up_.clone());
  const Tensor dout = random_.normal({48, 32}, GetParam());
  QuantOutputs outputs;
  Tensor gradient_value;
  Tape tape;
  {
    const TapeScope scope(tape);
    Variable in(gate_up_.clone());
    Tape::record("source", {leaf}, std::array{&in}, [&] {
      return [&, gradient = in.gradient()] {
        gradient_value = gradient->value().clone();
        outputs = gradient->fused().quant_outputs();
      };
    });
    const QuantOutputRequest wanted = request();
    in.gradient()->set_quant_request(wanted);
    const Variable first = swiglu(in), second = swiglu(in);
    first.gradient()->contribute(dout);
    second.gradient()->contribute(dout);
    tape.backward();
    EXPECT_EQ(*wanted.amax_into.data<float>(), 0.0f) << "of no part of the sum";
  }
  EXPECT_FALSE(outputs.wanted());
  EXPECT_TRUE(gradient_value.is_contiguous());
}

INSTANTIATE_TEST_SUITE_P(All, QuantCodes, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& param) { return std::string(to_string(param.param)); });

}  // namespace
}  // namespace quench::autograd
