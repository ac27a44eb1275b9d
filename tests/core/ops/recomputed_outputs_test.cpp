// Backward ops that give the forward result once more: the same bits as the forward op's.

#include "core/ops/norm.h"
#include "core/ops/quantize/quantize.h"
#include "core/ops/swiglu.h"
#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

TEST(RecomputedOutputs, SwigluBackwardGivesTheForwardResult) {
  Generator random(1);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor gate_up = random.normal({13, 74}, dtype), dout = random.normal({13, 37}, dtype);
    const Tensor expected = Tensor::empty({13, 37}, dtype), out = Tensor::empty({13, 37}, dtype);
    swiglu({gate_up, expected});
    swiglu_backward({.dout = dout, .gate_up = gate_up, .dgate_up = gate_up, .out = out});
    EXPECT_TRUE(same_bits(out, expected)) << to_string(dtype);
  }
}

TEST(RecomputedOutputs, RmsNormBackwardGivesTheForwardResult) {
  Generator random(2);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = random.normal({11, 53}, dtype), weight = random.normal({53}, dtype);
    const Tensor dy = random.normal({11, 53}, dtype), rstd = Tensor::empty({11}, DType::f32);
    const Tensor expected = Tensor::empty({11, 53}, dtype), y = Tensor::empty({11, 53}, dtype);
    rms_norm({.x = x, .weight = weight, .y = expected, .rstd = rstd});
    rms_norm_backward({.dy = dy, .x = x, .weight = weight, .rstd = rstd, .dx = dy, .y = y});
    EXPECT_TRUE(same_bits(y, expected)) << to_string(dtype);
  }
}

TEST(RecomputedOutputs, CodesOfRmsNormsResultNeedNoValue) {
  Generator random(3);
  const Shape shape{16, 53};
  const QuantFormat format = code_format(ElementFormat::e4m3, Granularity::tensor, Orientation::transposed);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool with_value : {false, true}) {
      const Tensor x = random.normal(shape, dtype), weight = random.normal({53}, dtype),
                   dy = random.normal(shape, dtype), rstd = Tensor::empty({16}, DType::f32);
      const Tensor expected = Tensor::empty(shape, dtype), y = with_value ? Tensor::empty(shape, dtype) : Tensor();
      rms_norm({.x = x, .weight = weight, .y = expected, .rstd = rstd});
      const Tensor scale = float8_scale(amax(expected, Granularity::tensor), ElementFormat::e4m3, false);
      const QuantTensor codes(format, shape, dtype, Tensor::empty({53, 16}, payload_dtype(ElementFormat::e4m3)), scale);
      rms_norm_backward(
          {.dy = dy, .x = x, .weight = weight, .rstd = rstd, .dx = dy, .y = y, .y_codes = {.transposed_codes = codes}});
      EXPECT_TRUE(same_bits(
          codes.payload(),
          cast_float8(expected, scale, ElementFormat::e4m3, Granularity::tensor, Orientation::transposed).payload()));
      if (with_value) {
        EXPECT_TRUE(same_bits(y, expected));
      }
    }
}

TEST(RecomputedOutputs, RmsNormRejectsOtherQuantizationOutputs) {
  const Tensor x = Tensor::zeros({4, 6}, DType::bf16), weight = Tensor::zeros({6}, DType::bf16),
               rstd = Tensor::zeros({4}, DType::f32);
  const auto error_of = [&](const QuantOutputs& codes) -> std::string {
    try {
      rms_norm_backward({.dy = x, .x = x, .weight = weight, .rstd = rstd, .dx = x, .y = x, .y_codes = codes});
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(error_of({.amax = Tensor::zeros({}, DType::f32)}).find("has codes alone"), std::string::npos);
  const QuantTensor wide(code_format(ElementFormat::e4m3, Granularity::tensor), {4, 8}, DType::bf16,
                         Tensor::zeros({4, 8}, payload_dtype(ElementFormat::e4m3)), Tensor::zeros({}, DType::f32));
  EXPECT_NE(error_of({.codes = wide}).find("quant_outputs has codes"), std::string::npos);
}

}  // namespace
}  // namespace quench
