#include "export/methods/rtn.h"

#include <cmath>

#include "core/ops/quantize/quantize_int.h"
#include "export/methods/hqq.h"
#include "export/ptq/quantized_layer.h"
#include "export/schemes/scheme_hint.h"
#include "tests/export/export_testing.h"

namespace quench {
namespace {

using namespace testing;
using ::testing::HasSubstr;

// Expected SQNR of normal weights by bits and groups, dB.
double least_sqnr(const OperandScheme& s) {
  if (s.blocks) {
    const double bits = bits_per_weight(s, 512);
    return bits > 6 ? 34 : bits > 4 ? 17 : bits > 3 ? 15 : bits > 2.5 ? 11 : bits > 2.1 ? 10 : 7;
  }
  if (s.element) return s.bits == 8 ? 28 : s.bits == 6 ? 27 : 16;
  if (has_few_levels(s.mapping))  // 2/3 of the amax leaves most of a row 0
    return s.mapping == IntMapping::binary ? 4 : s.mapping == IntMapping::stretched ? 6 : 2;
  constexpr double kOfRows[] = {0, 0, 2, 8, 14, 20, 27, 33, 39};
  return kOfRows[s.bits];
}

TEST(Rtn, EverySchemeKeepsTheSignal) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor w = normal_weight({64, 512}, dtype);
    for (const Scheme& scheme : scheme_table()) {
      const QuantizedWeight q = rtn(w, scheme.weights, "w");
      const PackedMatrix packed = pack(q, "w");
      EXPECT_GE(signal_to_noise(w, packed), least_sqnr(scheme.weights)) << scheme.name;
      EXPECT_LE(static_cast<double>(q.nbytes()) * 8 / static_cast<double>(w.numel()),
                bits_per_weight(scheme.weights, 512) + (dtype == DType::f32 ? 1.1 : 0.1))
          << scheme.name;
    }
  }
}

// Scales of GGUF are f16, whose subnormals hold those of small weights: no worse than ggml's own blocks, by less than 1
// dB.
TEST(Rtn, SmallWeightsKeepTheirValuesUnderF16Scales) {
  for (const float sigma : {1e-3f, 1e-4f, 1e-5f, 2e-6f}) {
    const Tensor w = normal_weight({32, 256}, DType::f32, 3);
    for (std::int64_t i = 0; i < w.numel(); ++i) w.data<float>()[i] *= sigma / 0.05f;
    for (const auto& [scheme, blocks] : {std::pair{"int8_weight_only_g32", "q8_0"}, {"int4_weight_only_g32", "q4_0"}}) {
      const double reference = signal_to_noise(w, pack(rtn(w, find_scheme(blocks)->weights, "w"), "w"));
      const OperandScheme& integers = find_scheme(scheme)->weights;
      for (const QuantizedWeight& made : {rtn(w, integers, "w", DType::f16), hqq(w, integers, "w", DType::f16)})
        EXPECT_GT(signal_to_noise(w, pack(made, "w")), reference - 1.0) << scheme << " of " << sigma;
    }
  }
  const Tensor tiny = Tensor::from_values<float>({1, 32}, std::vector<float>(32, 1e-12f));
  const QuantizedWeight q = rtn(tiny, find_scheme("int8_weight_only_g32")->weights, "w", DType::f16);
  EXPECT_EQ(float(q.scales.data<float16>()[0]), 0x1p-24f) << "never 0";
}

// The export equals the values simulated by QAT.
TEST(Rtn, IntegersMatchFakeQuantization) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor w = normal_weight({32, 256}, dtype, 2);
    for (const Scheme& scheme : scheme_table()) {
      const OperandScheme& s = scheme.weights;
      if (s.element || s.blocks || !s.symmetric()) continue;
      const Tensor fake = Tensor::empty(w.shape(), dtype);
      fake_quantize_int({.x = w,
                         .out = fake,
                         .mask = {},
                         .scales = {},
                         .zero_points = {},
                         .options = {.bits = s.bits, .mapping = s.mapping, .group_size = s.group_size}});
      EXPECT_TRUE(equal_bytes(unpacked(pack(rtn(w, s, "w"), "w"), dtype), fake))
          << scheme.name << " " << to_string(dtype);
    }
  }
}

TEST(Rtn, Float8IsAmaxOver448) {
  const Tensor w = Tensor::from_values<float>({2, 2}, std::array{448.0f, 1.0f, -2.0f, 0.01f});
  const QuantizedWeight q = rtn(w, find_scheme("float8_weight_only")->weights, "w");
  EXPECT_EQ(q.scales.data<float>()[0], 1.0f);
  EXPECT_EQ(q.scales.data<float>()[1], 2.0f / 448.0f);
  const auto* codes = static_cast<const std::uint8_t*>(q.codes.raw_data());
  EXPECT_EQ(codes[0], 0x7E);
  EXPECT_EQ(codes[2], 0xFE);
  EXPECT_EQ(codes[3], E4m3::encode(0.01f / (2.0f / 448.0f)));
}

TEST(Rtn, BlocksShareAScaleOverRowsAndColumns) {
  const Tensor w = normal_weight({130, 200}, DType::f32);
  const QuantizedWeight q = rtn(w, find_scheme("float8_dynamic_block")->weights, "w");
  ASSERT_EQ(q.scales.shape(), (Shape{2, 2}));
  float amax = 0;
  for (std::int64_t r = 128; r < 130; ++r)
    for (std::int64_t c = 128; c < 200; ++c) amax = std::max(amax, std::abs(w.data<float>()[r * 200 + c]));
  EXPECT_EQ(q.scales.data<float>()[3], amax / 448.0f);
}

TEST(Rtn, ZeroGroupsStayZero) {
  const Tensor w = Tensor::zeros({4, 512}, DType::f32);
  for (const Scheme& scheme : scheme_table()) {
    const Tensor values = unpacked(pack(rtn(w, scheme.weights, "w"), "w"));
    for (std::int64_t i = 0; i < values.numel(); ++i)
      ASSERT_LE(std::abs(values.data<float>()[i]), 0x1.8p-125f) << scheme.name << ", 3 times the least scale";
  }
}

TEST(Rtn, NamesWhatCannotBeQuantized) {
  const auto refusal = [](const Tensor& w, std::string_view scheme) -> std::string {
    try {
      (void)rtn(w, find_scheme(scheme)->weights, "layers.3.up_proj.weight");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  Tensor bad = normal_weight({4, 64}, DType::f32);
  bad.data<float>()[7] = NAN;
  EXPECT_THAT(refusal(bad, "int4_weight_only_g32"),
              HasSubstr("layers.3.up_proj.weight cannot be quantized: it holds NaN"));
  EXPECT_THAT(refusal(normal_weight({4, 48}, DType::f32), "int4_weight_only_g32"),
              HasSubstr("groups of 32 do not divide its 48 inputs"));
  EXPECT_THAT(refusal(normal_weight({4, 64}, DType::f32), "q4_k"), HasSubstr("blocks of 256"));
}

std::string refusal_of_scheme(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

// No scheme makes 0 of every value, whatever the method.
TEST(SchemeTable, EverySchemeAndMethodWithoutDataKeepsValues) {
  const Tensor w = normal_weight({8, 256}, DType::f32, 3);
  for (const Scheme& scheme : scheme_table())
    for (const Quantizer& quantizer : quantizers()) {
      if (quantizer.calibrated || !quantizer.problem(scheme).empty()) continue;
      const QuantizedWeight q =
          quantizer.quantize({.weight = w, .scheme = scheme.weights, .name = "w", .scale_dtype = std::nullopt});
      const Tensor values = unpacked(pack(q, "w"));
      EXPECT_TRUE(
          std::any_of(values.data<float>(), values.data<float>() + values.numel(), [](float x) { return x != 0; }))
          << scheme.name << " " << quantizer.name;
    }
}

TEST(SchemeTable, AWeightOfWhichNothingIsLeftIsRefused) {
  const Tensor tiny = normal_weight({8, 256}, DType::f32, 3);
  for (std::int64_t i = 0; i < tiny.numel(); ++i) tiny.data<float>()[i] *= 1e-12f;
  ModelTensor t = tensor("layers.1.k_proj", tiny, nullptr);
  QuantizedLayer layer{&t, {find_scheme("q8_0"), ""}};
  EXPECT_THAT(refusal_of_scheme([&] { quantize_layer(layer, {}, nullptr); }),
              HasSubstr("layers.1.k_proj.weight: scheme q8_0 rounds every value to 0"));
  ModelTensor zero = tensor("layers.1.k_proj", Tensor::zeros({8, 256}, DType::f32), nullptr);
  layer = {&zero, {find_scheme("q8_0"), ""}};
  EXPECT_NO_THROW(quantize_layer(layer, {}, nullptr));
}

TEST(SchemeTable, NamesOfOtherProgramsNameOurs) {
  for (const auto& [name, first] :
       std::map<std::string, std::string>{{"w4a16", "int4_weight_only_g128"},
                                          {"W4A16_ASYM", "int4_weight_only_g128_asym"},
                                          {"int4", "int4_weight_only_g128"},
                                          {"int4_g32", "int4_weight_only_g32"},
                                          {"fp8", "float8_dynamic"},
                                          {"FP8-dynamic", "float8_dynamic"},
                                          {"fp8_block", "float8_dynamic_block"},
                                          {"w8a8", "int8dyn_int8"},
                                          {"w8a16", "int8_weight_only"},
                                          {"Q4_K_M", "q4_k_m"},
                                          {"Q4_0", "q4_0"},
                                          {"q4", "q4_k_m"},
                                          {"nvfp4a16", "nvfp4_weight_only"},
                                          {"MXFP4", "mxfp4"},
                                          {"8da4w", "int8dyn_int4_g32"},
                                          {"Int8WeightOnlyConfig", "int8_weight_only"},
                                          {"int4_wieght_only_g32", "int4_weight_only_g32"},
                                          {"INT4_WEIGHT_ONLY_G32", "int4_weight_only_g32"}}) {
    const std::vector<std::string> similar = similar_schemes(name);
    ASSERT_FALSE(similar.empty()) << name;
    EXPECT_EQ(similar.front(), first) << name;
    for (const std::string& scheme : similar) EXPECT_NE(find_scheme(scheme), nullptr) << scheme;
    EXPECT_THAT(refusal_of_scheme([&, text = name] { (void)require_scheme(text, "--scheme"); }),
                HasSubstr(fmt::format("'{}' is unknown; did you mean {} (", name, first)));
  }
  EXPECT_EQ(similar_schemes("ternary_g256").front(), "ternary_weight_only_g256");
  EXPECT_EQ(similar_schemes("seq2").front(), "seq_weight_only_g64");
  EXPECT_TRUE(similar_schemes("quux").empty());
  EXPECT_THAT(refusal_of_scheme([] { (void)require_scheme("int1_weight_only_g64", "--scheme"); }),
              HasSubstr("use int1_weight_only_g64_asym or int2_weight_only_g64"));
}

TEST(SchemeTable, NamesAreUniqueAndFound) {
  for (const Scheme& scheme : scheme_table()) EXPECT_EQ(find_scheme(scheme.name), &scheme);
  EXPECT_EQ(find_scheme("int4_weight_only_g32")->weights.group_size, 32);
  try {
    (void)require_scheme("int9", "--scheme");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_config);
    EXPECT_THAT(error.what(), HasSubstr("--scheme 'int9' is unknown"));
  }
}

}  // namespace
}  // namespace quench
