// Quantizers of GGUF block types: error, importance, and values that a type holds exactly or nearly.

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "core/gguf_types/block_tensors.h"
#include "core/ops/quantize/quantize_gguf.h"
#include "export/schemes/scheme.h"
#include "tests/export/export_testing.h"

namespace quench {
namespace {

using namespace testing;

constexpr std::int64_t kColumns = 512;

std::vector<const BlockFormat*> written_formats() {
  std::vector<const BlockFormat*> formats;
  for (const BlockFormat& format : block_formats())
    if (format.quantize != nullptr) formats.push_back(&format);
  return formats;
}

// Values of f32 [rows, kColumns] after the type.
std::vector<float> rounded(const Tensor& x, const BlockFormat& format, std::span<const float> importance = {}) {
  const Tensor blocks = quantize_blocks(x, format.type, "w", importance);
  std::vector<float> values(static_cast<std::size_t>(x.numel()));
  for (std::int64_t i = 0; i < x.numel() / format.elements; ++i)
    dequantize_block(format, blocks.data<std::uint8_t>() + i * format.bytes, values.data() + i * format.elements);
  return values;
}

// Root of the weighted squared error over that of the values.
double relative_error(const Tensor& x, const std::vector<float>& values, std::span<const float> importance = {}) {
  double error = 0, size = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double w = importance.empty() ? 1.0 : importance[static_cast<std::size_t>(i % x.size(1))];
    const double value = x.data<float>()[i], difference = values[static_cast<std::size_t>(i)] - value;
    error += w * difference * difference;
    size += w * value * value;
  }
  return std::sqrt(error / size);
}

std::vector<float> uneven_importance() {
  std::vector<float> importance(kColumns);
  for (std::size_t i = 0; i < importance.size(); ++i) importance[i] = std::exp(1.5f * random_normal({3, 1, 0}, i));
  return importance;
}

// Errors of ggml's quantizers (llama.cpp of xllamacpp 2026.10) for normal values, without importance.
const std::map<BlockType, double>& errors_of_ggml() {
  static const std::map<BlockType, double> errors = {
      {BlockType::q8_0, 0.00533},  {BlockType::q4_0, 0.0856},    {BlockType::q4_1, 0.0779},
      {BlockType::q5_0, 0.0424},   {BlockType::q5_1, 0.0377},    {BlockType::q2_k, 0.295},
      {BlockType::q3_k, 0.1505},   {BlockType::q4_k, 0.0709},    {BlockType::q5_k, 0.0360},
      {BlockType::q6_k, 0.0176},   {BlockType::iq4_nl, 0.0758},  {BlockType::iq4_xs, 0.0764},
      {BlockType::iq3_s, 0.165},   {BlockType::iq3_xxs, 0.2135}, {BlockType::iq2_s, 0.2644},
      {BlockType::iq2_xs, 0.2992}, {BlockType::iq2_xxs, 0.343},  {BlockType::tq1_0, 0.808},
      {BlockType::tq2_0, 0.808},   {BlockType::mxfp4, 0.1178}};
  return errors;
}

TEST(GgufQuantizers, ErrorsOfNormalValuesAreAtMostThoseOfGgml) {
  const Tensor x = normal_weight({480, kColumns}, DType::f32);
  for (const BlockFormat* format : written_formats()) {
    const double error = relative_error(x, rounded(x, *format));
    // Types that are ggml's bit for bit differ by the sample.
    const bool same =
        format->type == BlockType::q8_0 || format->type == BlockType::q4_0 || format->type == BlockType::mxfp4;
    EXPECT_LT(error, errors_of_ggml().at(format->type) * (same ? 1.02 : 1.0)) << format->name;
    EXPECT_GT(error, 0.004) << format->name;
  }
}

TEST(GgufQuantizers, ImportanceLowersTheErrorThatItWeights) {
  const Tensor x = normal_weight({24, kColumns}, DType::f32);
  const std::vector<float> importance = uneven_importance();
  for (const BlockFormat* format : written_formats()) {
    const double with = relative_error(x, rounded(x, *format, importance), importance),
                 without = relative_error(x, rounded(x, *format), importance);
    const bool ignores = format->type == BlockType::q8_0 || format->type == BlockType::mxfp4;
    const bool ternary = format->type == BlockType::tq1_0 || format->type == BlockType::tq2_0;
    if (ignores)
      EXPECT_EQ(with, without) << format->name;
    else
      EXPECT_LT(with, without * (ternary ? 0.995 : 0.92)) << format->name;
  }
}

TEST(GgufQuantizers, ImportanceOfOneOrZeroEverywhereIsNone) {
  const Tensor x = normal_weight({2, kColumns}, DType::f32);
  const std::vector<float> ones(kColumns, 1.0f), zeros(kColumns, 0.0f), large(kColumns, 1e30f);
  for (const BlockFormat* format : written_formats()) {
    const Tensor expected = quantize_blocks(x, format->type, "w", ones);
    EXPECT_TRUE(equal_bytes(quantize_blocks(x, format->type, "w", zeros), expected)) << format->name;
    EXPECT_TRUE(equal_bytes(quantize_blocks(x, format->type, "w", large), expected)) << format->name;
    // Without, ggml's rounding, or errors that count by the size of the value.
    using enum BlockType;
    constexpr std::array kOwn = {q4_0, q5_0, q2_k, q3_k, iq4_nl, iq4_xs};
    if (std::ranges::find(kOwn, format->type) != kOwn.end()) continue;
    EXPECT_TRUE(equal_bytes(quantize_blocks(x, format->type, "w"), expected)) << format->name;
  }
}

TEST(GgufQuantizers, ColumnsWithoutImportanceLeaveTheOthersTheirAccuracy) {
  Tensor x = normal_weight({4, kColumns}, DType::f32);
  std::vector<float> importance(kColumns, 1.0f);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    if (i % 8 != 3) continue;
    x.data<float>()[i] *= 20;  // outliers that nothing reads
    importance[static_cast<std::size_t>(i % kColumns)] = 0;
  }
  for (const BlockFormat* format : written_formats()) {
    if (format->type == BlockType::q8_0 || format->type == BlockType::mxfp4) continue;
    const double with = relative_error(x, rounded(x, *format, importance), importance),
                 without = relative_error(x, rounded(x, *format), importance);
    EXPECT_LT(with, 0.75 * without) << format->name;
  }
}

TEST(GgufQuantizers, BadImportanceIsNamed) {
  const Tensor x = normal_weight({1, kColumns}, DType::f32);
  const auto refusal = [&](std::vector<float> importance) -> std::string {
    try {
      (void)quantize_blocks(x, BlockType::q4_k, "model.w", importance);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was refused";
  };
  EXPECT_THAT(refusal({1, 2}), ::testing::HasSubstr("model.w has 512 columns, its importance 2"));
  std::vector<float> importance(kColumns, 1.0f);
  for (const float bad : {-1.0f, NAN, INFINITY}) {
    importance[7] = bad;
    EXPECT_THAT(refusal(importance), ::testing::HasSubstr(fmt::format("model.w: importance {} of column 7", bad)));
  }
}

TEST(GgufQuantizers, ZerosStayZero) {
  const Tensor x = Tensor::zeros({2, kColumns}, DType::f32);
  for (const BlockFormat* format : written_formats())
    for (const float value : rounded(x, *format)) ASSERT_EQ(value, 0.0f) << format->name;
}

TEST(GgufQuantizers, AConstantKeepsItsValue) {
  for (const BlockFormat* format : written_formats()) {
    if (format->type == BlockType::mxfp4) continue;  // its scales are powers of two
    for (const float constant : {1.0f, -1.0f, 0.02f, -0.02f}) {
      const Tensor x = Tensor::empty({1, kColumns}, DType::f32);
      std::fill_n(x.data<float>(), kColumns, constant);
      EXPECT_LT(relative_error(x, rounded(x, *format)), 0.005) << format->name << " of " << constant;
    }
  }
}

TEST(GgufQuantizers, OneOutlierKeepsItsSize) {
  Tensor x = normal_weight({1, kColumns}, DType::f32);
  x.data<float>()[77] = -5.0f;
  for (const BlockFormat* format : written_formats()) {
    const std::vector<float> values = rounded(x, *format);
    // Its neighbours in a codebook of two bits cannot be smaller than a fifth of it.
    const bool coarse = format->bytes * 8 < 3 * format->elements && format->needs_importance;
    EXPECT_NEAR(values[77], -5.0f, 5 * (coarse ? 0.55f : 0.2f)) << format->name;
    // The next super block does not know of it.
    const Tensor rest = Tensor::from_values<float>({1, 256}, std::span(x.data<float>() + 256, 256));
    const std::vector<float> alone = rounded(rest, *format);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), values.begin() + 256)) << format->name;
  }
}

// Values of a file, quantized again.
TEST(GgufQuantizers, ValuesOfTheGridComeBackNearly) {
  const Tensor x = normal_weight({16, kColumns}, DType::f32);
  for (const BlockFormat* format : written_formats()) {
    const std::vector<float> once = rounded(x, *format);
    const Tensor again = Tensor::from_values<float>({16, kColumns}, once);
    EXPECT_LT(relative_error(again, rounded(again, *format)), 0.25 * errors_of_ggml().at(format->type)) << format->name;
  }
}

TEST(GgufQuantizers, TernaryValuesComeBackExactly) {
  Tensor x = normal_weight({2, kColumns}, DType::f32);
  for (std::int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = 0.03125f * std::clamp(std::round(x.data<float>()[i] / 0.05f), -1.0f, 1.0f);
  for (const BlockType type : {BlockType::tq1_0, BlockType::tq2_0}) {
    const std::vector<float> values = rounded(x, block_format(type));
    EXPECT_TRUE(std::equal(values.begin(), values.end(), x.data<float>())) << block_format(type).name;
  }
}

TEST(GgufQuantizers, ResultsDependOnNothingElse) {
  const Tensor x = normal_weight({8, kColumns}, DType::f32);
  for (const BlockFormat* format : written_formats()) {
    const Tensor all = quantize_blocks(x, format->type, "w");
    const Tensor row = quantize_blocks(x.narrow(0, 5, 1), format->type, "w");
    EXPECT_TRUE(equal_bytes(row, all.narrow(0, 5, 1))) << format->name;
  }
}

TEST(GgufQuantizers, EveryWrittenTypeIsASchemeThatRefusesOddWidths) {
  for (const BlockFormat* format : written_formats()) {
    const auto found = std::ranges::find_if(
        scheme_table(), [&](const Scheme& scheme) { return scheme.weights.blocks == format->type; });
    ASSERT_NE(found, scheme_table().end()) << format->name;
    EXPECT_THAT(shape_problem(found->weights, 4, format->elements + 8),
                ::testing::HasSubstr(fmt::format("blocks of {} do not divide", format->elements)));
    Tensor x = normal_weight({1, kColumns}, DType::f32);
    x.data<float>()[3] = NAN;
    EXPECT_THROW((void)rtn(x, found->weights, "model.w"), Error);
  }
}

}  // namespace
}  // namespace quench
