// AutoRound's weights and the search of scales, without a model.

#include "export/methods/tuned_weight.h"

#include <cmath>
#include <limits>

#include "export/methods/method_table.h"
#include "export/methods/rtn.h"
#include "tests/core/ops/op_testing.h"
#include "tests/export/export_testing.h"

namespace quench {
namespace {

using namespace testing;

const Scheme& scheme_named(const std::string& name) {
  return require_scheme(name, "scheme");
}

Tensor weight_of_rows(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  const Tensor w = Tensor::empty({rows, columns}, DType::f32);
  fill_random_normal({seed, 0, 0}, 0, {w.data<float>(), static_cast<std::size_t>(w.numel())});
  for (std::int64_t i = 0; i < w.numel(); ++i) w.data<float>()[i] *= i % 37 == 0 ? 0.08f : 0.02f;
  return w;
}

Tensor dequantized(const QuantizedWeight& weight) {
  return unpacked(pack(weight, "w"));
}

double squared_error(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) sum += std::pow(a.data<float>()[i] - b.data<float>()[i], 2);
  return sum;
}

constexpr const char* kSchemes[] = {"int2_weight_only_g32",      "int3_weight_only_g64", "int4_weight_only",
                                    "int4_weight_only_g32_asym", "int8_weight_only",     "int2_weight_only_g64_asym",
                                    "mxfp4_weight_only",         "nvfp4_weight_only",    "mxfp8_weight_only",
                                    "float8_weight_only",        "mxfp6_weight_only"};

// Stored codes are those that a layer computed with during the tuning, bit for bit.
TEST(TunedWeight, StoredCodesDequantizeToTheTunedValues) {
  const Tensor w = weight_of_rows(8, 128, 3), g = weight_of_rows(8, 128, 4);
  for (const char* name : kSchemes)
    for (const DType scales : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(name);
      TunedWeight tuned(w, scheme_named(name).weights, "w", scales);
      const Tensor start = tuned.values();
      for (int i = 0; i < 20; ++i) tuned.step(g, 0.02f);
      const Tensor values = tuned.values(), stored = dequantized(tuned.quantized());
      EXPECT_GT(squared_error(start, values), 0.0);
      for (std::int64_t i = 0; i < w.numel(); ++i) ASSERT_EQ(values.data<float>()[i], stored.data<float>()[i]) << i;
    }
}

TEST(TunedWeight, ZeroRateAndRestoreKeepTheStart) {
  const Tensor w = weight_of_rows(4, 64, 3), g = weight_of_rows(4, 64, 4);
  TunedWeight tuned(w, scheme_named("int3_weight_only_g32").weights, "w");
  const std::vector<float> start = floats(tuned.values());
  tuned.step(g, 0.0f);
  EXPECT_EQ(floats(tuned.values()), start);
  for (int i = 0; i < 10; ++i) tuned.step(g, 0.05f);
  EXPECT_NE(floats(tuned.values()), start);
  tuned.restore();
  EXPECT_EQ(floats(tuned.values()), start);
}

// An offset moves by the sum of the rates at most, and never by more than half a step: a code by one.
TEST(TunedWeight, CodesMoveByOneStepAtMost) {
  const Tensor w = weight_of_rows(4, 64, 3), g = weight_of_rows(4, 64, 4);
  TunedWeight tuned(w, scheme_named("mxfp4_weight_only").weights, "w");
  const Tensor start = tuned.values();
  for (int i = 0; i < 100; ++i) tuned.step(g, 0.1f);
  const Tensor end = tuned.values();
  std::int64_t moved = 0;
  for (std::int64_t i = 0; i < w.numel(); ++i) {
    const float before = start.data<float>()[i], after = end.data<float>()[i], slope = g.data<float>()[i];
    if (before == after) continue;
    ++moved;
    EXPECT_EQ(after<before, slope> 0) << i;
  }
  EXPECT_GT(moved, w.numel() / 4);
}

TEST(ScaleSearch, LosesNoMoreThanRoundToNearest) {
  const Tensor w = weight_of_rows(16, 128, 7);
  const Quantizer& mse = require_quantizer("mse", "method");
  for (const char* name : kSchemes) {
    SCOPED_TRACE(name);
    const OperandScheme& scheme = scheme_named(name).weights;
    const double nearest = squared_error(w, dequantized(rtn(w, scheme, "w"))),
                 searched = squared_error(w, dequantized(mse.quantize({w, scheme, "w", std::nullopt})));
    EXPECT_LE(searched, nearest * 1.0001);
    if (scheme.bits <= 4 && !scheme.element) {
      EXPECT_LT(searched, 0.95 * nearest);
    }
  }
  // Blocks under largest codes of 6, of 4 and between.
  const OperandScheme& nvfp4 = scheme_named("nvfp4_weight_only").weights;
  EXPECT_LT(squared_error(w, dequantized(mse.quantize({w, nvfp4, "w", std::nullopt}))),
            0.9 * squared_error(w, dequantized(rtn(w, nvfp4, "w"))));
}

TEST(ScaleSearch, ColumnsOfLargeInputsCountMore) {
  const Tensor w = weight_of_rows(16, 128, 7), importance = Tensor::zeros({128}, DType::f32);
  for (std::int64_t c = 0; c < 128; c += 8) importance.data<float>()[c] = 1.0f;
  const auto weighted = [&](const Tensor& values) {
    double sum = 0;
    for (std::int64_t i = 0; i < w.numel(); ++i)
      sum += importance.data<float>()[i % 128] * std::pow(w.data<float>()[i] - values.data<float>()[i], 2);
    return sum;
  };
  const OperandScheme& scheme = scheme_named("int2_weight_only_g64").weights;
  EXPECT_LT(weighted(TunedWeight(w, scheme, "w", std::nullopt, std::nullopt, importance).values()),
            0.9 * weighted(TunedWeight(w, scheme, "w").values()));
}

TEST(TunedWeight, RefusesByName) {
  const Tensor w = weight_of_rows(256, 256, 3);
  for (const char* name : {"q4_0", "q4_k", "float8_dynamic_block", "float8_dynamic_tensor"}) {
    SCOPED_TRACE(name);
    EXPECT_NE(autoround_problem(scheme_named(name).weights), "");
    expect_failure(ErrorCode::unsupported, "layers.0 cannot be quantized: AutoRound",
                   [&] { TunedWeight(w, scheme_named(name).weights, "layers.0"); });
  }
  w.data<float>()[7] = std::numeric_limits<float>::quiet_NaN();
  expect_failure(ErrorCode::nonfinite, "layers.0",
                 [&] { TunedWeight(w, scheme_named("int4_weight_only").weights, "layers.0"); });
}

}  // namespace
}  // namespace quench
