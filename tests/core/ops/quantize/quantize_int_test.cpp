#include "core/ops/quantize/quantize_int.h"

#include "tests/core/ops/golden_file.h"
#include "tests/core/ops/op_testing.h"
#include "tests/core/ops/quantize/quantize_inputs.h"

namespace quench {
namespace {

using ::testing::ElementsAre;
using testing::floats;
using testing::GoldenFile;
using testing::kInf;
using testing::kNan;
using testing::of;
using testing::random_tensor;
using testing::same_bytes;

std::vector<int> codes_of(const Tensor& t) {
  return {t.data<std::int8_t>(), t.data<std::int8_t>() + t.numel()};
}
Tensor fake_quantized(const Tensor& x, const IntQuantOptions& options, const Tensor& mask = {}) {
  const Tensor out = Tensor::empty_like(x);
  fake_quantize_int({.x = x, .out = out, .mask = mask, .scales = {}, .zero_points = {}, .options = options});
  return out;
}
bool in_range(const Tensor& mask, std::int64_t row, std::int64_t column) {
  return (mask.data<std::uint8_t>()[row * mask.size(-1) + column / 8] >> (column % 8) & 1) != 0;
}

struct GoldenCase {
  const char* name;
  IntQuantOptions weight;
  bool activation;
};

class QuantizeIntGolden : public ::testing::TestWithParam<std::tuple<GoldenCase, const char*>> {};

TEST_P(QuantizeIntGolden, FakeQuantizedOperandsAreEqual) {
  const auto& [golden, dtype] = GetParam();
  const GoldenFile file("qat_linear.safetensors");
  const auto tensor = [&](const char* what) { return file.tensor(fmt::format("{}.{}.{}", golden.name, dtype, what)); };
  EXPECT_TRUE(same_bytes(fake_quantized(tensor("w"), golden.weight), tensor("w_fq")));
  if (!golden.activation) return;
  EXPECT_TRUE(same_bytes(fake_quantized(tensor("x"), {.bits = 8, .mapping = IntMapping::asymmetric}), tensor("x_fq")));
}

INSTANTIATE_TEST_SUITE_P(
    All, QuantizeIntGolden,
    ::testing::Combine(::testing::Values(GoldenCase{"int8dyn_int4g32", {.bits = 4, .group_size = 32}, true},
                                         GoldenCase{"int4wo_g64", {.bits = 4, .group_size = 64}, false},
                                         GoldenCase{"int8pc", {.bits = 8}, true},
                                         GoldenCase{
                                             "int4wo_asym_g32",
                                             {.bits = 4, .mapping = IntMapping::truncated_zero_point, .group_size = 32},
                                             false}),
                       ::testing::Values("f32", "bf16")));

// Numerics 4.1: 7.4999995 rounds to 7; 7.5 rounds to 8, which is out of range.
TEST(QuantizeInt, LargestPositiveValueOfSymmetricCodesMayClip) {
  for (const auto& [amax, clips] : {std::pair{1.0f, false}, {2.703125f, true}}) {
    const Tensor x = of({1, 4}, {amax, -0.5f * amax, 0.1f, 0.0f});
    const Tensor mask = Tensor::empty(range_mask_shape(x.shape()), DType::u8);
    const Tensor out = fake_quantized(x, {.bits = 4}, mask);
    EXPECT_EQ(in_range(mask, 0, 0), !clips) << amax;
    EXPECT_TRUE(in_range(mask, 0, 1) && in_range(mask, 0, 2) && in_range(mask, 0, 3));
    EXPECT_FLOAT_EQ(out.data<float>()[0], 7 * amax / 7.5f);
  }
  EXPECT_THAT(codes_of(quantize_int(of({1, 3}, {2.703125f, -2.703125f, 0.0f}), {.bits = 4}).codes),
              ElementsAre(7, -8, 0));
}

TEST(QuantizeInt, MappingsUseTheirRange) {
  const Tensor x = of({1, 4}, {-1.0f, 0.0f, 2.1f, 3.0f});
  const IntQuantized asymmetric = quantize_int(x, {.bits = 4, .mapping = IntMapping::asymmetric});
  EXPECT_THAT(floats(asymmetric.scales.scales), ElementsAre(4.0f / 15));
  EXPECT_THAT(floats(asymmetric.scales.zero_points), ElementsAre(-4.0f));  // -8 + round(3.75)
  EXPECT_THAT(codes_of(asymmetric.codes), ElementsAre(-8, -4, 4, 7));
  const IntQuantized whole = quantize_int(x, {.bits = 4, .mapping = IntMapping::symmetric_no_clipping});
  EXPECT_THAT(floats(whole.scales.scales), ElementsAre(3.0f / 7));
  EXPECT_THAT(codes_of(whole.codes), ElementsAre(-2, 0, 5, 7));
  const IntQuantized tinygemm = quantize_int(x, {.bits = 4, .mapping = IntMapping::float_zero_point});
  EXPECT_THAT(floats(tinygemm.scales.scales), ElementsAre(4.0f / 15));
  EXPECT_NEAR(tinygemm.scales.zero_points.data<float>()[0], -1.0f + 8 * 4.0f / 15, 1e-6);
  EXPECT_THAT(codes_of(tinygemm.codes), ElementsAre(-8, -4, 4, 7));
  // Without 0 among the values, the float zero point spans what is there.
  const IntQuantOptions options{.bits = 4, .mapping = IntMapping::float_zero_point};
  EXPECT_NEAR(fake_quantized(of({1, 2}, {5.0f, 6.5f}), options).data<float>()[0], 5.0f, 1e-5);
}

TEST(QuantizeInt, EveryWidthStaysWithinHalfAStep) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (int bits = 2; bits <= 8; ++bits)
      for (const IntMapping mapping :
           {IntMapping::symmetric_no_clipping, IntMapping::asymmetric, IntMapping::float_zero_point})
        for (const std::int64_t group : {0, 5, 24, 120}) {
          const IntQuantOptions options{.bits = bits, .mapping = mapping, .group_size = group};
          const Tensor x = dtype == DType::f32 ? random_tensor<float>({7, 120}) : random_tensor<bfloat16>({7, 120});
          const Tensor mask = Tensor::empty(range_mask_shape(x.shape()), DType::u8);
          const Tensor out = fake_quantized(x, options, mask);
          const IntQuantized q = quantize_int(x, options);
          EXPECT_TRUE(same_bytes(dequantize_int(q.codes, q.scales, dtype, options), out));
          const std::int64_t groups = q.scales.scales.size(-1);
          for (std::int64_t i = 0; i < x.numel(); ++i) {
            const auto at = [&](const Tensor& t) {
              return dtype == DType::f32 ? t.data<float>()[i] : float(t.data<bfloat16>()[i]);
            };
            const std::int64_t g = i / 120 * groups + i % 120 / (120 / groups);
            const float step = q.scales.scales.data<float>()[g];
            // Half a step, and what rounding to bf16 adds: to the scale, the zero point and the value.
            const double slack = dtype == DType::f32 ? 1e-3 : 1.3 + 0.004 * (1 << bits);
            EXPECT_LE(std::abs(at(out) - at(x)), step * (0.5 + slack) + std::abs(at(x)) * 0x1p-8)
                << bits << " bits, group " << group << ", element " << i;
          }
        }
}

TEST(QuantizeInt, GivenScalesAndStoredScales) {
  const Tensor x = random_tensor({4, 64});
  const IntQuantOptions options{.bits = 4, .group_size = 16, .scale_dtype = DType::bf16};
  const IntScales scales = int_scales(x, options);
  for (const float scale : floats(scales.scales)) EXPECT_EQ(scale, float(bfloat16(scale)));
  const Tensor out = Tensor::empty_like(x);
  fake_quantize_int({x, out, {}, scales.scales, scales.zero_points, options});
  EXPECT_TRUE(same_bytes(out, fake_quantized(x, options)));
  EXPECT_TRUE(same_bytes(out, dequantize_int(cast_int(x, scales, options), scales, DType::f32, options)));
}

TEST(QuantizeInt, ZerosStayAndWhatIsNotFinitePoisonsItsGroup) {
  for (const IntMapping mapping : {IntMapping::symmetric, IntMapping::symmetric_no_clipping, IntMapping::asymmetric,
                                   IntMapping::float_zero_point, IntMapping::truncated_zero_point}) {
    for (const float bad : {kNan, kInf, -kInf}) {
      const Tensor x = of({1, 8}, {0, 0, 0, 0, 1, bad, -2, 0});
      const Tensor out = fake_quantized(x, {.bits = 8, .mapping = mapping, .group_size = 4});
      for (int i = 0; i < 4; ++i) EXPECT_EQ(out.data<float>()[i], 0.0f);
      for (int i = 4; i < 8; ++i) EXPECT_TRUE(std::isnan(out.data<float>()[i])) << bad << " at " << i;
    }
  }
}

TEST(QuantizeInt, GradientsStopWhereTheMaskIsZero) {
  const Tensor x = random_tensor({3, 21});
  const Tensor mask = Tensor::empty(range_mask_shape(x.shape()), DType::u8);
  (void)fake_quantized(x, {.bits = 2}, mask);
  const Tensor gradient = Tensor::empty_like(x);
  for (std::int64_t i = 0; i < x.numel(); ++i) gradient.data<float>()[i] = static_cast<float>(i + 1);
  zero_masked({gradient, mask});
  int zeros = 0;
  for (std::int64_t r = 0; r < 3; ++r)
    for (std::int64_t c = 0; c < 21; ++c) {
      const float value = gradient.data<float>()[r * 21 + c];
      EXPECT_EQ(value, in_range(mask, r, c) ? static_cast<float>(r * 21 + c + 1) : 0.0f);
      zeros += value == 0.0f ? 1 : 0;
    }
  EXPECT_GT(zeros, 0);
}

TEST(QuantizeInt, RefusesWhatDoesNotFit) {
  const Tensor x = random_tensor({2, 48});
  const auto message = [&](const IntQuantOptions& options) {
    try {
      (void)quantize_int(x, options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message({.bits = 4, .group_size = 32}), ::testing::HasSubstr("groups of 32 do not divide rows of 48"));
  EXPECT_THAT(message({.bits = 9}), ::testing::HasSubstr("9 bits"));
  EXPECT_THAT(message({.scale_dtype = DType::i8}), ::testing::HasSubstr("scales of i8"));
}

}  // namespace
}  // namespace quench
