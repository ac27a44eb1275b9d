// Casts against vectors made by TorchAO: equal bit for bit (tests/golden/README.md).

#include "core/ops/quantize/quantize.h"
#include "tests/core/ops/golden_file.h"

namespace quench {
namespace {

using testing::GoldenFile;
using testing::same_bytes;

using Float8Case = std::tuple<const char*, ElementFormat, Granularity, bool>;
class Float8CastGolden : public ::testing::TestWithParam<Float8Case> {
 protected:
  static std::string name() {
    const auto& [dtype, element, granularity, power_of_two] = GetParam();
    const char* suffix = granularity == Granularity::tensor ? "tensor"
                         : granularity == Granularity::row  ? "row"
                                                            : "col";
    return fmt::format("{}_{}_{}{}", dtype, to_string(element), suffix, power_of_two ? "_p2" : "");
  }
};

TEST_P(Float8CastGolden, ScalesAndCodesAreEqual) {
  const auto& [dtype, element, granularity, power_of_two] = GetParam();
  const GoldenFile file("float8_cast.safetensors");
  const Tensor x = file.tensor(fmt::format("x_{}", dtype));
  const QuantTensor q = quantize_float8(x, {element, granularity, power_of_two});
  const Tensor expected_scale = file.tensor("scale_" + name()), expected = file.tensor("q_" + name());
  EXPECT_EQ(q.scales().shape(), expected_scale.shape());
  EXPECT_TRUE(same_bytes(q.scales(), expected_scale));
  EXPECT_EQ(q.payload().dtype(), expected.dtype());
  EXPECT_EQ(q.payload().shape(), expected.shape());
  EXPECT_TRUE(same_bytes(q.payload(), expected));
}

INSTANTIATE_TEST_SUITE_P(
    All, Float8CastGolden,
    ::testing::Combine(::testing::Values("bf16", "f32"), ::testing::Values(ElementFormat::e4m3, ElementFormat::e5m2),
                       ::testing::Values(Granularity::tensor, Granularity::row, Granularity::column),
                       ::testing::Bool()));

using MxCase = std::tuple<const char*, ElementFormat, MxScaleMode>;
class MxCastGolden : public ::testing::TestWithParam<MxCase> {};

TEST_P(MxCastGolden, ScalesAndCodesAreEqual) {
  const auto& [dtype, element, mode] = GetParam();
  const GoldenFile file("mx_cast.safetensors");
  const std::string name = fmt::format("{}_{}_{}", dtype, to_string(element), to_string(mode));
  const QuantTensor q = quantize_mx(file.tensor(fmt::format("x_{}", dtype)), {.element = element, .mode = mode});
  const Tensor expected_scale = file.tensor("scale_" + name);
  EXPECT_EQ(q.scales().shape(), expected_scale.shape());
  EXPECT_TRUE(same_bytes(q.scales(), expected_scale));
  EXPECT_TRUE(same_bytes(q.payload(), file.tensor("q_" + name)));
}

INSTANTIATE_TEST_SUITE_P(All, MxCastGolden,
                         ::testing::Combine(::testing::Values("bf16", "f32"),
                                            ::testing::Values(ElementFormat::e4m3, ElementFormat::e5m2,
                                                              ElementFormat::e2m3, ElementFormat::e3m2,
                                                              ElementFormat::e2m1),
                                            ::testing::Values(MxScaleMode::floor, MxScaleMode::rceil, MxScaleMode::ceil,
                                                              MxScaleMode::even)));

TEST(Nvfp4CastGolden, OneLevel) {
  const GoldenFile file("nvfp4_cast.safetensors");
  const QuantTensor q = quantize_nvfp4(file.tensor("x"));
  EXPECT_EQ(q.scales().shape(), file.tensor("scale").shape());
  EXPECT_TRUE(same_bytes(q.scales(), file.tensor("scale")));
  EXPECT_TRUE(same_bytes(q.payload(), file.tensor("q")));
}

TEST(Nvfp4CastGolden, TwoLevels) {
  const GoldenFile file("nvfp4_cast.safetensors");
  const Tensor x = file.tensor("x");
  const Tensor global = nvfp4_global_scale(amax(x, Granularity::tensor));
  EXPECT_TRUE(same_bytes(global, file.tensor("pts")));
  const QuantTensor q = quantize_nvfp4(x, global);
  EXPECT_TRUE(same_bytes(q.scales(), file.tensor("scale2")));
  EXPECT_TRUE(same_bytes(q.payload(), file.tensor("q2")));
}

}  // namespace
}  // namespace quench
