// Quantization methods on single weights: GPTQ, AWQ, SmoothQuant, HQQ and the statistics of inputs that they use.

#include <algorithm>
#include <array>
#include <cmath>

#include "export/methods/awq.h"
#include "export/methods/gptq.h"
#include "export/methods/inverse_factor.h"
#include "export/methods/rtn.h"
#include "export/methods/smoothquant.h"
#include "export/methods/tuned_weight.h"
#include "tests/export/export_testing.h"

namespace quench {
namespace {

using namespace testing;
using ::testing::HasSubstr;

// Inputs whose columns hang together and differ in size, as those of a language model do.
Tensor correlated_inputs(std::int64_t rows, std::int64_t columns) {
  const Tensor x = Tensor::empty({rows, columns}, DType::f32);
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto draw = [&](std::int64_t stream, std::int64_t i) {
      return random_normal({11, static_cast<std::uint64_t>(stream), 0}, static_cast<std::uint64_t>(i));
    };
    const float common = draw(1, r);
    for (std::int64_t c = 0; c < columns; ++c) {
      const float size = c % 17 == 0 ? 8.0f : 0.5f + 0.1f * static_cast<float>(c % 5);
      x.data<float>()[r * columns + c] = size * (common + 0.7f * draw(2, r * columns + c));
    }
  }
  return x;
}

InputStatistics statistics_of(const Tensor& x) {
  InputStatistics statistics(x.size(1), true);
  statistics.add(x.narrow(0, 0, x.size(0) / 2), "layer");
  statistics.add(x.narrow(0, x.size(0) / 2, x.size(0) - x.size(0) / 2), "layer");
  return statistics;
}

// Squared error of the outputs, relative to them.
double error_of(const Tensor& weight, const QuantizedWeight& quantized, const InputStatistics& inputs) {
  const Tensor difference = unpacked(pack(quantized, "w"));
  for (std::int64_t i = 0; i < weight.numel(); ++i) difference.data<float>()[i] -= weight.data<float>()[i];
  return output_error(difference, inputs.gram()) / output_error(weight, inputs.gram());
}

TEST(InputStatistics, CoverAllInputs) {
  const Tensor x = Tensor::from_values<float>({3, 2}, std::array{1.0f, -2.0f, 3.0f, 0.0f, -4.0f, 5.0f});
  InputStatistics s = statistics_of(x);
  EXPECT_EQ(s.rows(), 3);
  EXPECT_EQ(s.amax(), 5.0f);
  EXPECT_EQ(s.largest().data<float>()[0], 4.0f);
  EXPECT_FLOAT_EQ(s.mean_magnitude().data<float>()[1], 7.0f / 3);
  const Tensor gram = s.gram();
  EXPECT_FLOAT_EQ(gram.data<float>()[0], 26);
  EXPECT_FLOAT_EQ(gram.data<float>()[1], -22);
  EXPECT_FLOAT_EQ(gram.data<float>()[3], 29);
  s.divide(Tensor::from_values<float>({2}, std::array{2.0f, 0.5f}));
  EXPECT_FLOAT_EQ(s.gram().data<float>()[0], 6.5);
  EXPECT_FLOAT_EQ(s.gram().data<float>()[1], -22);
  EXPECT_FLOAT_EQ(s.largest().data<float>()[1], 10);
  x.data<float>()[2] = NAN;
  try {
    s.add(x, "layers.3.up_proj");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::nonfinite);
    EXPECT_THAT(error.what(), HasSubstr("layers.3.up_proj"));
  }
}

TEST(InputStatistics, FirstTokensOfSequencesHaveAShareOfTheGramMatrix) {
  constexpr std::int64_t length = 64;
  const auto statistics = [&](float first) {
    const Tensor x = Tensor::empty({2 * length, 2}, DType::f32);
    std::fill_n(x.data<float>(), x.numel(), 1.0f);
    for (const std::int64_t row : {std::int64_t{0}, length}) {
      x.data<float>()[2 * row] = first;
      x.data<float>()[2 * row + 1] = 0;
    }
    InputStatistics s(2, true);
    s.add(x, "layer", std::array{std::int64_t{0}, length});
    EXPECT_DOUBLE_EQ(s.mean_square_sum(), 2 * (length - 1));
    return s;
  };
  const double rest = 2 * (length - 1), weight = InputStatistics::kFirstShare * length;
  EXPECT_FLOAT_EQ(statistics(1).gram().data<float>()[0], static_cast<float>(rest + 2 * weight));  // by their number
  EXPECT_FLOAT_EQ(statistics(1).gram().data<float>()[3], static_cast<float>(rest));
  const double share = InputStatistics::kFirstShare * (2 * rest + 2 * 2.25);
  EXPECT_FLOAT_EQ(statistics(1.5).gram().data<float>()[0], static_cast<float>(rest + share));  // by their squares
  EXPECT_FLOAT_EQ(statistics(100).gram().data<float>()[0], static_cast<float>(rest + 2e4));    // enough without
  InputStatistics divided = statistics(1);
  divided.divide(Tensor::from_values<float>({2}, std::array{2.0f, 0.5f}));
  EXPECT_DOUBLE_EQ(divided.mean_square_sum(), (rest / 4 + rest * 4) / 2);
  EXPECT_FLOAT_EQ(divided.gram().data<float>()[0], static_cast<float>(rest / 4 + weight * 2 / 4));
}

TEST(InverseFactor, IsTheCholeskyFactorOfTheInverse) {
  constexpr std::int64_t n = 150;  // more than one block
  const Tensor x = correlated_inputs(400, n);
  const Tensor gram = statistics_of(x).gram();
  std::vector<double> h(gram.data<float>(), gram.data<float>() + n * n), given = h;
  for (std::int64_t i = 0; i < n; ++i)
    h[static_cast<std::size_t>(i * (n + 1))] += 1, given[static_cast<std::size_t>(i * (n + 1))] += 1;
  const Tensor u = inverse_factor(h, n, "w");
  const float* f = u.data<float>();
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < i; ++j) ASSERT_EQ(f[i * n + j], 0.0f);
  // U H U^T = 1.
  for (std::int64_t i = 0; i < n; i += 7)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t a = i; a < n; ++a)
        for (std::int64_t b = j; b < n; ++b)
          sum += static_cast<double>(f[i * n + a]) * given[static_cast<std::size_t>(a * n + b)] *
                 static_cast<double>(f[j * n + b]);
      ASSERT_NEAR(sum, i == j ? 1.0 : 0.0, 2e-4) << i << " " << j;
    }
  std::vector<double> bad = {1, 2, 2, 1};
  EXPECT_THROW((void)inverse_factor(bad, 2, "w"), Error);
}

TEST(Gptq, ChangesOutputsLessThanRoundToNearest) {
  const Tensor w = normal_weight({48, 256}, DType::f32);
  const InputStatistics inputs = statistics_of(correlated_inputs(600, 256));
  for (const char* name : {"int4_weight_only_g32", "int3_weight_only_g64_asym", "int4_weight_only", "int8_weight_only",
                           "float8_weight_only", "float8_weight_only_tensor", "float8_dynamic_block", "mxfp4", "mxfp6",
                           "nvfp4_weight_only"}) {
    const OperandScheme& scheme = find_scheme(name)->weights;
    const double nearest = error_of(w, rtn(w, scheme, "w"), inputs);
    for (const bool order : {false, true}) {
      const double ours = error_of(w, gptq(w, scheme, "w", {}, inputs, {.activation_order = order}), inputs);
      EXPECT_LT(ours, 0.75 * nearest) << name << " " << order;
    }
  }
}

// Inputs that do not hang together leave nothing to make up for: round to nearest, under scales of least squared error
// in the order of activations.
TEST(Gptq, IsRoundToNearestForIndependentInputs) {
  const Tensor w = normal_weight({16, 64}, DType::f32), x = Tensor::zeros({64, 64}, DType::f32);
  for (std::int64_t i = 0; i < 64; ++i) x.data<float>()[i * 65] = 3.0f;
  const InputStatistics inputs = statistics_of(x);
  for (const char* name : {"int4_weight_only_g32", "int4_weight_only_g32_asym", "int8_weight_only", "mxfp4", "mxfp8",
                           "nvfp4_weight_only", "float8_weight_only"})
    for (const bool order : {false, true}) {
      const OperandScheme& scheme = find_scheme(name)->weights;
      const QuantizedWeight a = gptq(w, scheme, "w", {}, inputs, {.activation_order = order}),
                            b = order ? TunedWeight(w, scheme, "w").quantized() : rtn(w, scheme, "w");
      std::size_t different = 0;  // ties alone
      for (std::size_t i = 0; i < a.codes.nbytes(); ++i)
        different += static_cast<const std::uint8_t*>(a.codes.raw_data())[i] !=
                     static_cast<const std::uint8_t*>(b.codes.raw_data())[i];
      EXPECT_LE(different, order ? 4u : 0u) << name;
      EXPECT_TRUE(equal_bytes(a.scales, b.scales)) << name;
    }
}

TEST(Gptq, ScalesAreThoseOfLeastSquaredErrorByDefault) {
  const Tensor w = normal_weight({48, 256}, DType::f32);
  w.data<float>()[3] = 0.4f;  // an outlier
  const InputStatistics inputs = statistics_of(correlated_inputs(600, 256));
  for (const char* name : {"int3_weight_only_g64", "int2_weight_only_g32_asym", "nvfp4_weight_only"}) {
    const OperandScheme& scheme = find_scheme(name)->weights;
    const QuantizedWeight made = gptq(w, scheme, "w", {}, inputs);
    EXPECT_FALSE(equal_bytes(made.scales, rtn(w, scheme, "w").scales)) << name;
    EXPECT_LT(error_of(w, made, inputs),
              error_of(w, gptq(w, scheme, "w", {}, inputs, {.activation_order = false}), inputs))
        << name;
  }
}

TEST(Gptq, ColumnsWithoutInputAreZeroAndNoInputIsRoundToNearest) {
  const Tensor w = normal_weight({8, 64}, DType::f32), x = correlated_inputs(200, 64);
  for (std::int64_t r = 0; r < 200; ++r) x.data<float>()[r * 64 + 5] = 0;
  const OperandScheme& scheme = find_scheme("int4_weight_only_g32")->weights;
  const QuantizedWeight q = gptq(w, scheme, "w", {}, statistics_of(x));
  for (std::int64_t r = 0; r < 8; ++r) EXPECT_EQ(q.codes.data<std::int8_t>()[r * 64 + 5], 0);
  const InputStatistics none(64, true);
  EXPECT_TRUE(equal_bytes(gptq(w, scheme, "w", {}, none).codes, rtn(w, scheme, "w").codes));
}

TEST(Gptq, SaysWhatItCannotDo) {
  EXPECT_THAT(gptq_problem(find_scheme("q4_k")->weights), HasSubstr("GGUF"));
  const Tensor w = normal_weight({4, 32}, DType::f32);
  const InputStatistics one = statistics_of(Tensor::from_values<float>({1, 32}, std::vector<float>(32, 1.0f)));
  try {
    (void)gptq(w, find_scheme("int4_weight_only_g32")->weights, "layers.1.down_proj", {}, one, {.damping = 0});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("layers.1.down_proj cannot be quantized: the Hessian of its inputs"));
  }
}

TEST(Awq, ScalesLowerTheErrorOfOutputs) {
  const Tensor w = normal_weight({48, 256}, DType::f32);
  InputStatistics inputs = statistics_of(correlated_inputs(600, 256));
  const OperandScheme& scheme = find_scheme("int3_weight_only_g64")->weights;
  const std::vector<ScaledWeight> weights = {{"w", w, &scheme}};
  const auto factors = awq_scales({weights, inputs});
  ASSERT_TRUE(factors.has_value());
  const double before = error_of(w, rtn(w, scheme, "w"), inputs);
  const Tensor scaled = w.clone();
  for (std::int64_t i = 0; i < w.numel(); ++i) scaled.data<float>()[i] *= factors->data<float>()[i % 256];
  inputs.divide(*factors);
  EXPECT_LT(error_of(scaled, rtn(scaled, scheme, "w"), inputs), 0.9 * before);
  EXPECT_FALSE(awq_scales({{{"w", w, nullptr}}, inputs}).has_value());
}

TEST(Awq, ScalesOfWeightsAreThoseOfLessOutputError) {
  const Tensor w = normal_weight({48, 256}, DType::f32);
  const InputStatistics inputs = statistics_of(correlated_inputs(600, 256)), none(256, true);
  for (const char* name : {"int3_weight_only_g64", "nvfp4_weight_only"}) {
    const OperandScheme& scheme = find_scheme(name)->weights;
    const double nearest = error_of(w, rtn(w, scheme, "w"), inputs);
    EXPECT_LT(error_of(w, awq_weight(w, scheme, "w", {}, {}, &inputs), inputs), 0.95 * nearest) << name;
    EXPECT_TRUE(equal_bytes(awq_weight(w, scheme, "w", {}, {}, &none).codes, rtn(w, scheme, "w").codes)) << name;
  }
  const OperandScheme& binary = find_scheme("binary_weight_only_g64")->weights;  // has no such scales
  EXPECT_TRUE(equal_bytes(awq_weight(w, binary, "w", {}, {}, &inputs).codes, rtn(w, binary, "w").codes));
}

// NVFP4's global scale belongs to an expert: a larger other one changes nothing.
TEST(Awq, ExpertsHaveTheirOwnAmax) {
  const InputStatistics inputs = statistics_of(correlated_inputs(600, 256));
  const OperandScheme& scheme = find_scheme("nvfp4_weight_only")->weights;
  const Tensor first = normal_weight({48, 256}, DType::f32), second = normal_weight({48, 256}, DType::f32, 7);
  const Tensor large = second.clone();
  for (std::int64_t i = 0; i < large.numel(); ++i) large.data<float>()[i] *= 0x1p14f;
  const auto factors = [&](const Tensor& other, std::int64_t expert) {
    return awq_scales({{{"0", first, &scheme, 0}, {"1", other, &scheme, expert}}, inputs});
  };
  const auto equal = factors(second, 1), unequal = factors(large, 1);
  ASSERT_TRUE(equal.has_value() && unequal.has_value());
  EXPECT_TRUE(equal_bytes(*unequal, *equal));
  const auto common = factors(large, 0);
  EXPECT_FALSE(common.has_value() && equal_bytes(*common, *equal)) << "one amax for both chooses otherwise";
}

TEST(SmoothQuant, FactorsMatchFormula) {
  const Tensor w = Tensor::from_values<float>({2, 2}, std::array{1.0f, -4.0f, 0.25f, 2.0f});
  InputStatistics inputs = statistics_of(Tensor::from_values<float>({2, 2}, std::array{16.0f, 1.0f, -2.0f, 0.5f}));
  const OperandScheme& scheme = find_scheme("int8dyn_int8")->weights;
  const auto half = smoothquant_scales({{{"w", w, &scheme}}, inputs});
  EXPECT_NEAR(half->data<float>()[0], 4.0f, 1e-5);
  EXPECT_NEAR(half->data<float>()[1], 0.5f, 1e-5);
  const auto shared = smoothquant_scales({{{"w", w, &scheme}}, inputs, {7, 7}, {}, 1.0});
  EXPECT_NEAR(shared->data<float>()[1], 16.0f, 1e-3);
}

}  // namespace
}  // namespace quench
