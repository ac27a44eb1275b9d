#include "core/ops/quantize/nf4.h"

#include <gmock/gmock.h>

#include "tests/core/ops/quantize/quantize_inputs.h"

namespace quench {
namespace {

// bitsandbytes' table, and its decision points to the digits that it gives them (csrc/kernels.cu, dQuantizeNF4).
TEST(Nf4, CodesAreThoseOfTheTable) {
  const std::vector<float> points = {
      -0.8480964004993439f,  -0.6106329262256622f,   -0.4599952697753906f, -0.33967943489551544f, -0.23460740596055984f,
      -0.13791173323988914f, -0.045525018125772476f, 0.03979014977812767f, 0.1202552504837513f,   0.2035212516784668f,
      0.2920137718319893f,   0.3893125355243683f,    0.5016634166240692f,  0.6427869200706482f,   0.8614784181118011f};
  for (std::uint8_t code = 0; code < 16; ++code) EXPECT_EQ(Nf4::encode(Nf4::decode(code)), code);
  for (std::size_t i = 0; i < points.size(); ++i) {
    EXPECT_EQ(Nf4::encode(points[i] - 1e-6f), i);
    EXPECT_EQ(Nf4::encode(points[i] + 1e-6f), i + 1);
  }
}

TEST(Nf4, BlocksComeBackWithinTheirSteps) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x =
        dtype == DType::f32 ? testing::random_tensor<float>({65, 320}) : testing::random_tensor<bfloat16>({65, 320});
    const auto at = [&](const Tensor& t, std::int64_t i) {
      return dtype == DType::f32 ? t.data<float>()[i] : float(t.data<bfloat16>()[i]);
    };
    for (std::int64_t i = 0; i < 64; ++i)  // a block of zeros
      dtype == DType::f32 ? void(x.data<float>()[i] = 0) : void(x.data<bfloat16>()[i] = bfloat16(0.0f));
    const Nf4Tensor q = quantize_nf4(x);
    EXPECT_LT(q.nbytes(), 65 * 320 * 17 / 32);
    const Tensor out = Tensor::empty(x.shape(), dtype);
    dequantize_nf4({q, out});
    for (std::int64_t b = 0; b < x.numel() / 64; ++b) {
      const float factor = q.factors.data<float>()[b / 256];
      const float scale = float(q.scales.data<std::int8_t>()[b]) / factor + *q.mean.data<float>();
      float most = 0;
      for (std::int64_t i = 64 * b; i < 64 * b + 64; ++i) most = std::max(most, std::abs(at(x, i)));
      EXPECT_LE(std::abs(scale - most), 1.01f / factor) << "half a step, or a clipped one, of the scales";
      for (std::int64_t i = 64 * b; i < 64 * b + 64; ++i) {
        const float expected = Nf4::decode(Nf4::encode(most > 0 ? at(x, i) / most : 0.0f)) * scale;
        EXPECT_EQ(at(out, i), dtype == DType::f32 ? expected : float(bfloat16(expected)));
      }
    }
  }
}

TEST(Nf4, RefusesWhatDoesNotFit) {
  EXPECT_THROW((void)quantize_nf4(testing::random_tensor({3, 7})), Error);
  const Tensor x = testing::random_tensor({2, 64});
  x.data<float>()[70] = testing::kNan;
  EXPECT_THROW((void)quantize_nf4(x), Error);
}

}  // namespace
}  // namespace quench
