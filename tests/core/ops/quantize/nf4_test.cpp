#include "core/ops/quantize/nf4.h"

#include <gmock/gmock.h>

#include "tests/core/ops/quantize/quantize_inputs.h"

namespace quench {
namespace {

// bitsandbytes' table, and its decision points to the digits that it gives them (csrc/kernels.cu, dQuantizeNF4).
TEST(Nf4, CodesMatchTable) {
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

// A matrix whose blocks differ in scale, one of them zero.
Tensor nf4_input(const Shape& shape, std::uint64_t seed) {
  const Tensor x = testing::random_tensor<float>(shape, seed);
  for (std::int64_t i = 0; i < std::min<std::int64_t>(64, x.numel()); ++i) x.data<float>()[i] = 0;
  return x;
}

Tensor f32_of(const Nf4Tensor& q) {
  const Tensor values = Tensor::empty(q.shape, DType::f32);
  dequantize_nf4({q, values});
  return values;
}

const std::vector<Shape> kNf4Shapes = {{1, 64},   {3, 64},   {16, 128}, {130, 320},
                                       {65, 192}, {600, 64}, {64, 24},  {2, 32}};

TEST(Nf4, AmaxMatchesDequantizedValues) {
  for (const Shape& shape : kNf4Shapes) {
    const Nf4Tensor q = quantize_nf4(nf4_input(shape, 5));
    for (const Granularity granularity : {Granularity::tensor, Granularity::row, Granularity::column}) {
      SCOPED_TRACE(shape.to_string() + " by " + std::string(to_string(granularity)));
      testing::expect_equal(nf4_amax(q, granularity), amax(f32_of(q), granularity));
    }
  }
}

TEST(Nf4, Float8CodesMatchCastOfValues) {
  for (const Shape& shape : kNf4Shapes)
    for (const auto& [granularity, orientation] : {std::pair{Granularity::tensor, Orientation::natural},
                                                   {Granularity::tensor, Orientation::transposed},
                                                   {Granularity::row, Orientation::natural},
                                                   {Granularity::column, Orientation::transposed}})
      for (const bool power_of_two : {false, true}) {
        const Nf4Tensor q = quantize_nf4(nf4_input(shape, 6));
        const Tensor scale = float8_scale(nf4_amax(q, granularity), ElementFormat::e4m3, power_of_two);
        const QuantTensor ours = cast_nf4_float8(q, scale, granularity, orientation);
        const QuantTensor expected = cast_float8(f32_of(q), scale, ElementFormat::e4m3, granularity, orientation);
        EXPECT_EQ(ours.format(), expected.format());
        EXPECT_EQ(ours.scales().raw_data(), scale.raw_data());
        EXPECT_EQ(testing::byte_values(ours.payload()), testing::byte_values(expected.payload()))
            << shape.to_string() << " by " << to_string(granularity);
      }
}

// The two formats' steps are independent: e4m3 adds a twelfth of NF4's squared error.
TEST(Nf4, Float8AddsLittleToItsError) {
  const Tensor x = Tensor::empty({512, 1024}, DType::f32);
  for (std::int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = 0.02f * random_normal({3, 0, 0}, static_cast<std::uint64_t>(i));
  const Nf4Tensor q = quantize_nf4(x);
  const Tensor scale = float8_scale(nf4_amax(q, Granularity::tensor), ElementFormat::e4m3, false);
  const Tensor values = f32_of(q), codes = dequantize(cast_nf4_float8(q, scale, Granularity::tensor), DType::f32);
  const auto distance = [&](const Tensor& a, const Tensor& b) {
    double error = 0, all = 0;
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const double d = double(a.data<float>()[i]) - double(b.data<float>()[i]);
      error += d * d;
      all += double(x.data<float>()[i]) * double(x.data<float>()[i]);
    }
    return std::sqrt(error / all);
  };
  EXPECT_NEAR(distance(values, x), 0.0920, 0.001);
  EXPECT_NEAR(distance(codes, values), 0.0265, 0.001);
  EXPECT_LT(distance(codes, x), 1.05 * distance(values, x));
}

TEST(Nf4, RefusesFloat8ScalesOfTheOtherAxis) {
  const Nf4Tensor q = quantize_nf4(nf4_input({16, 128}, 7));
  const Tensor rows = Tensor::zeros({16, 1}, DType::f32), columns = Tensor::zeros({1, 128}, DType::f32);
  EXPECT_THROW((void)cast_nf4_float8(q, columns, Granularity::column), Error);
  EXPECT_THROW((void)cast_nf4_float8(q, rows, Granularity::row, Orientation::transposed), Error);
  EXPECT_THROW((void)cast_nf4_float8(q, columns, Granularity::tensor), Error);
  EXPECT_THROW((void)nf4_amax(quantize_nf4(testing::random_tensor({64})), Granularity::tensor), Error);
}

TEST(Nf4, RefusesWhatDoesNotFit) {
  EXPECT_THROW((void)quantize_nf4(testing::random_tensor({3, 7})), Error);
  const Tensor x = testing::random_tensor({2, 64});
  x.data<float>()[70] = testing::kNan;
  EXPECT_THROW((void)quantize_nf4(x), Error);
}

}  // namespace
}  // namespace quench
