// Inputs of products as the readers of our folders round them: values next to those of compressed-tensors and TorchAO
// (tests/reference/make_rounded_inputs.py).

#include "export/ptq/quantize_inputs.h"

#include <algorithm>

#include "core/json/json.h"
#include "core/ops/packed_linear.h"
#include "core/ops/quantize/quantize.h"
#include "tests/export/export_testing.h"
#include "tests/reference_numbers.h"

namespace quench {
namespace {

constexpr std::int64_t kInputRows = 64, kInputColumns = 256;

Tensor reference_inputs() {
  const Tensor x = Tensor::empty({kInputRows, kInputColumns}, DType::f32);
  for (std::int64_t r = 0; r < kInputRows; ++r)
    for (std::int64_t c = 0; c < kInputColumns; ++c) {
      const std::uint32_t bits = testing::mixed(static_cast<std::uint32_t>(r * kInputColumns + c + 1));
      const auto whole = static_cast<float>(static_cast<std::int64_t>(bits % (2 * r + 65)) - (r + 40));
      x.data<float>()[r * kInputColumns + c] = std::ldexp(whole, -static_cast<int>(bits >> 30));
    }
  return x;
}

std::optional<float> calibrated_scale(const OperandScheme& inputs) {
  if (inputs.scale == ScaleForm::e4m3_two_level) {
    const Tensor x = reference_inputs();
    const auto [low, high] = std::minmax_element(x.data<float>(), x.data<float>() + x.numel());
    return input_scale(inputs, std::max(-*low, *high));
  }
  if (!inputs.calibrated) return std::nullopt;
  return inputs.element ? 13.0f / 448.0f : 17.5f / 127.5f;
}

void expect_rows(const Tensor& values, const Json& theirs) {
  ASSERT_EQ(values.shape(), (Shape{kInputRows, kInputColumns}));
  for (std::int64_t r = 0; r < kInputRows; ++r) {
    float* row = values.data<float>() + r * kInputColumns;
    for (std::int64_t c = 0; c < kInputColumns; ++c) row[c] += 0.0f;  // no sign
    EXPECT_EQ(testing::checksum(std::as_bytes(std::span(row, kInputColumns))),
              theirs.as_array()[static_cast<std::size_t>(r)].as_string())
        << "row " << r;
  }
}

TEST(QuantizeInputsGolden, ValuesMatchReaders) {
  const Json reference = Json::parse_file(testing::source_dir() / "tests/reference/rounded_inputs.json");
  for (const auto& [reader, division] :
       {std::pair{"compressed-tensors", IntDivision::quotient}, {"torchao", IntDivision::reciprocal}})
    for (const auto& [name, rows] : reference.at(reader).as_object()) {
      SCOPED_TRACE(fmt::format("{} {}", reader, name));
      const OperandScheme& inputs = *require_scheme(name, "scheme").inputs;
      const auto rounding = input_rounding(inputs, name, calibrated_scale(inputs), {.division = division});
      expect_rows(rounding(reference_inputs()), rows);
      ASSERT_EQ(static_cast<bool>(rounding.nvfp4()), inputs.scale == ScaleForm::e4m3_two_level);
      if (rounding.nvfp4()) expect_rows(dequantize(rounding.nvfp4()(reference_inputs()), DType::f32), rows);
      if (!rounding.integers()) continue;
      // The codes that products of few tokens take are the same.
      const IntQuantized codes = quantize_int(reference_inputs(), *rounding.integers());
      expect_rows(dequantize_int(codes.codes, codes.scales, DType::f32, *rounding.integers()), rows);
    }
}

// A scale is used as it is stored, whether it is a quotient by 448 or not.
TEST(QuantizeInputs, CalibratedScalesOfFloat8AreKept) {
  const OperandScheme& inputs = *find_scheme("float8_static")->inputs;
  const Tensor x = Tensor::from_values<float>({1, 4}, std::array{448.0f, -1.0f, 0.0f, 1e30f});
  for (const float scale : {1.0f, 0.375f, 3.0f / 448.0f, 0.1f, 1.7f, 1e-40f, 3e38f}) {
    const Tensor out = input_rounding(inputs, "layer", scale)(x);
    const float factor = out.data<float>()[3] / 448.0f;
    if (scale < 1e20f)
      EXPECT_NEAR(factor / scale, 1.0, scale < 1e-38f ? 1e-4 : 6e-8) << scale;
    else
      EXPECT_EQ(out.data<float>()[0], 0.0f) << scale;
  }
}

// As of rows that end with zeros: 160 elements in groups of 128.
TEST(QuantizeInputs, AShorterLastGroupHasAScaleOfItsOwn) {
  const OperandScheme& inputs = *find_scheme("float8_dynamic_block")->inputs;
  const auto rounding = input_rounding(inputs, "layer");
  constexpr std::int64_t kRows = 3, kColumns = 160, kWhole = 256;
  const Tensor x = testing::normal_weight({kRows, kColumns}, DType::f32),
               padded = Tensor::zeros({kRows, kWhole}, DType::f32);
  for (std::int64_t r = 0; r < kRows; ++r)
    std::copy_n(x.data<float>() + r * kColumns, kColumns, padded.data<float>() + r * kWhole);
  const Tensor out = rounding(x), expected = rounding(padded);
  ASSERT_EQ(out.shape(), x.shape());
  for (std::int64_t r = 0; r < kRows; ++r)
    for (std::int64_t c = 0; c < kColumns; ++c)
      EXPECT_EQ(out.data<float>()[r * kColumns + c], expected.data<float>()[r * kWhole + c]) << r << " " << c;
}

// Amax 6.4 and 7.2 under codes of at most 6: compressed-tensors goes to the next power of two from 7 on.
TEST(QuantizeInputs, ScalesOfMxfp4FollowTheReader) {
  const OperandScheme& inputs = *find_scheme("mxfp4")->inputs;
  const Tensor x = Tensor::zeros({2, 32}, DType::f32);
  x.data<float>()[0] = 6.4f;
  x.data<float>()[1] = 0.5f;
  x.data<float>()[32] = -7.2f;
  x.data<float>()[33] = 0.5f;
  const Tensor theirs = input_rounding(inputs, "layer", {}, {.mx4_scale = MxScaleMode::even})(x);
  EXPECT_EQ(theirs.data<float>()[0], 6.0f) << "clipped";
  EXPECT_EQ(theirs.data<float>()[1], 0.5f);
  EXPECT_EQ(theirs.data<float>()[32], -8.0f);
  const Tensor smallest = input_rounding(inputs, "layer")(x);
  EXPECT_EQ(smallest.data<float>()[0], 6.0f) << "3 times 2";
  EXPECT_EQ(smallest.data<float>()[1], 0.0f) << "a quarter of a step, to even";
  EXPECT_EQ(smallest.data<float>()[32], -8.0f);
}

TEST(QuantizeInputs, Nvfp4WithoutItsScaleIsRefused) {
  try {
    (void)input_rounding(*find_scheme("nvfp4")->inputs, "layer");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "layer: the calibrated scale of its inputs is missing");
  }
}

}  // namespace
}  // namespace quench
