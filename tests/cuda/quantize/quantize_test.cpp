// The casts on the GPU against the CPU's, code by code, and against the vectors made by TorchAO.

#include "core/ops/quantize/quantize.h"

#include "tests/core/ops/golden_file.h"
#include "tests/cuda/quantize/quantize_testing.h"

namespace quench::testing {
namespace {

void expect_equal(const QuantTensor& gpu, const QuantTensor& expected) {
  EXPECT_TRUE(equal(gpu.scales(), expected.scales()));
  EXPECT_TRUE(equal(gpu.payload(), expected.payload()));
  for (const DType to : {DType::f32, DType::bf16}) EXPECT_TRUE(equal(dequantize(gpu, to), dequantize(expected, to)));
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> list = {{1, 1},      {3, 7},     {5, 37},       {33, 64},     {2, 3, 65},
                                          {130, 257},  {4, 1024},  {3, 1025},     {2, 20000},   {3, 16391},
                                          {2, 300, 8}, {1, 40000}, {2, 2, 5, 16}, {700, 1, 24}, {513, 520}};
  return list;
}

TEST(CudaQuantizeFloat8, EveryGranularityMatchesTheCpu) {
  std::uint64_t seed = 0;
  for (const Shape& shape : shapes())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const Granularity granularity : {Granularity::tensor, Granularity::row, Granularity::column})
        for (const std::int64_t shift : {0, 1, 8}) {
          const bool e4m3 = ++seed % 2 == 0, power_of_two = seed % 3 == 0;
          const Tensor x = input(shape, dtype, shift, seed);
          if (granularity != Granularity::tensor && seed % 5 == 0) spoil(x, 211);
          SCOPED_TRACE(fmt::format("{} {} by {} shift {} seed {}", shape.to_string(), to_string(dtype),
                                   to_string(granularity), shift, seed));
          const Float8Options options{e4m3 ? ElementFormat::e4m3 : ElementFormat::e5m2, granularity, power_of_two};
          EXPECT_TRUE(equal(amax(on_gpu(x), granularity), amax(x, granularity)));
          expect_equal(quantize_float8(on_gpu(x), options), quantize_float8(x, options));
        }
}

// Tall, wide and many matrices: one part of the rows and many, parts of few rows, a last part that is short, strips of
// columns that are short, more strips than are in work at a time.
TEST(CudaQuantizeFloat8, MaximaOfColumnsInEveryDivision) {
  std::uint64_t seed = 0;
  for (const Shape& shape : {Shape{1, 4096}, Shape{31, 2048}, Shape{33, 2056}, Shape{5003, 264}, Shape{40001, 8},
                             Shape{20000, 37}, Shape{3, 700, 1000}, Shape{12, 135200}, Shape{530, 520, 8}})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const std::int64_t shift : {0, 1}) {
        const Tensor x = input(shape, dtype, shift, ++seed);
        if (seed % 3 == 0) spoil(x, 99991);
        SCOPED_TRACE(fmt::format("{} {} shift {}", shape.to_string(), to_string(dtype), shift));
        const Tensor on_device = on_gpu(x), expected = amax(x, Granularity::column);
        for (int run = 0; run < 2; ++run) EXPECT_TRUE(equal(amax(on_device, Granularity::column), expected));
      }
}

TEST(CudaQuantizeFloat8, EveryBf16ValueAndAMillionF32Words) {
  const Tensor all = Tensor::empty({65536}, DType::bf16), words = Tensor::empty({1 << 20}, DType::f32);
  for (std::int64_t i = 0; i < 65536; ++i) all.data<bfloat16>()[i] = bfloat16::from_bits(static_cast<std::uint16_t>(i));
  for (std::int64_t i = 0; i < words.numel(); ++i)
    words.data<float>()[i] = bit_cast<float>(random_word(RandomKey{1, 2, 3}, static_cast<std::uint64_t>(i)));
  for (const float by : {1.0f, 0.37f, 3e-3f, 1e10f, 0x1p-100f, 0.0f, 3e38f, kInf, kNan})
    for (const ElementFormat element : {ElementFormat::e4m3, ElementFormat::e5m2})
      for (const Tensor& x : {all, words}) {
        SCOPED_TRACE(by);
        const Tensor scale = of({}, {by});
        expect_equal(cast_float8(on_gpu(x), on_gpu(scale.view({1})).view({}), element, Granularity::tensor),
                     cast_float8(x, scale, element, Granularity::tensor));
      }
}

// All halfway points between codes, and their neighbours.
TEST(CudaQuantizeFloat8, TiesGoToTheEvenCode) {
  std::vector<float> list;
  for (int code = 0; code < 0x7E; ++code) {
    const float tie =
        (E4m3::decode(static_cast<std::uint8_t>(code)) + E4m3::decode(static_cast<std::uint8_t>(code + 1))) / 2;
    for (const float x : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, kInf)}) {
      list.push_back(x);
      list.push_back(-x);
    }
  }
  for (const float x : {447.9f, 448.0f, 464.0f, 464.1f, 480.0f, 1e9f, 57344.0f, 61440.0f, 61441.0f, 65536.0f})
    list.push_back(x);
  const Tensor x = of({static_cast<std::int64_t>(list.size())}, list), one = of({}, {1.0f});
  for (const ElementFormat element : {ElementFormat::e4m3, ElementFormat::e5m2})
    expect_equal(cast_float8(on_gpu(x), on_gpu(one.view({1})).view({}), element, Granularity::tensor),
                 cast_float8(x, one, element, Granularity::tensor));
}

TEST(CudaQuantizeFloat8, ScalesOfAnyAmax) {
  const Tensor amaxes = of({9}, {0.0f, 1e-45f, 1e-38f, 1e-12f, 0.7f, 448.0f, 3e38f, kInf, kNan});
  for (const ElementFormat element : {ElementFormat::e4m3, ElementFormat::e5m2})
    for (const bool power_of_two : {false, true})
      EXPECT_TRUE(
          equal(float8_scale(on_gpu(amaxes), element, power_of_two), float8_scale(amaxes, element, power_of_two)));
}

TEST(CudaQuantizeMx, EveryFormatAndModeMatchesTheCpu) {
  std::uint64_t seed = 100;
  for (const Shape& shape : {Shape{32}, Shape{32, 32}, Shape{64, 96}, Shape{2, 288, 64}, Shape{512, 352}})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const ElementFormat element :
           {ElementFormat::e4m3, ElementFormat::e5m2, ElementFormat::e2m3, ElementFormat::e3m2, ElementFormat::e2m1})
        for (const MxScaleMode mode : {MxScaleMode::floor, MxScaleMode::rceil, MxScaleMode::ceil, MxScaleMode::even})
          for (const Orientation orientation : {Orientation::natural, Orientation::transposed}) {
            if (shape.rank() == 1 && orientation == Orientation::transposed) continue;
            ++seed;
            const Tensor x = input(shape, dtype, seed % 3 == 0 ? 1 : 0, seed);
            if (seed % 2 == 0) spoil(x, 307);
            SCOPED_TRACE(fmt::format("{} {} {} {} transposed {}", shape.to_string(), to_string(dtype),
                                     to_string(element), to_string(mode), orientation == Orientation::transposed));
            const MxOptions options{element, mode, orientation};
            expect_equal(quantize_mx(on_gpu(x), options), quantize_mx(x, options));
          }
}

// The axis that blocks do not run along may have any length.
TEST(CudaQuantizeMx, OddSizes) {
  for (const Orientation orientation : {Orientation::natural, Orientation::transposed}) {
    const bool turned = orientation == Orientation::transposed;
    const Tensor x = input(turned ? Shape{3, 96, 37} : Shape{3, 37, 96}, DType::bf16, 0, 7);
    const MxOptions options{.element = ElementFormat::e2m1, .orientation = orientation};
    expect_equal(quantize_mx(on_gpu(x), options), quantize_mx(x, options));
  }
}

TEST(CudaQuantizeNvfp4, OneAndTwoLevelsMatchTheCpu) {
  std::uint64_t seed = 500;
  for (const Shape& shape : {Shape{16}, Shape{3, 16}, Shape{37, 48}, Shape{2, 65, 160}, Shape{600, 256}})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const std::int64_t shift : {0, 1})
        for (const bool spoilt : {false, true}) {
          const Tensor x = input(shape, dtype, shift, ++seed);
          const Tensor global = nvfp4_global_scale(amax(x, Granularity::tensor));
          EXPECT_TRUE(equal(nvfp4_global_scale(amax(on_gpu(x), Granularity::tensor)), global));
          if (spoilt) spoil(x, 97);
          SCOPED_TRACE(fmt::format("{} {} shift {} spoilt {}", shape.to_string(), to_string(dtype), shift, spoilt));
          expect_equal(quantize_nvfp4(on_gpu(x)), quantize_nvfp4(x));
          expect_equal(quantize_nvfp4(on_gpu(x), on_gpu(global)), quantize_nvfp4(x, global));
        }
}

TEST(CudaQuantize, EmptyTensors) {
  const Tensor x = Tensor::empty({0, 64}, DType::f32, kGpu), narrow = Tensor::empty({3, 0}, DType::bf16, kGpu);
  for (const Granularity granularity : {Granularity::tensor, Granularity::row, Granularity::column})
    EXPECT_EQ(dequantize(quantize_float8(x, {.granularity = granularity}), DType::f32).shape(), (Shape{0, 64}));
  EXPECT_TRUE(equal(amax(x, Granularity::tensor), of({}, {0.0f})));
  EXPECT_TRUE(equal(amax(narrow, Granularity::row), of({3, 1}, {0, 0, 0})));
  EXPECT_TRUE(equal(amax(x, Granularity::column), Tensor::zeros({1, 64}, DType::f32)));
  EXPECT_EQ(quantize_mx(x, {}).shape(), (Shape{0, 64}));
  EXPECT_EQ(quantize_nvfp4(x).shape(), (Shape{0, 64}));
}

TEST(CudaQuantize, LargeTensorAndASecondRunGiveTheSameBits) {
  const Tensor small = random_tensor<bfloat16>({1 << 16}, 9);
  const Tensor x = Tensor::empty({2048, 4096}, DType::bf16);
  for (std::int64_t i = 0; i < x.numel(); ++i) x.data<bfloat16>()[i] = small.data<bfloat16>()[i * 7 % (1 << 16)];
  const Tensor gpu = on_gpu(x);
  for (int run = 0; run < 2; ++run) {
    for (const Granularity granularity : {Granularity::tensor, Granularity::row, Granularity::column}) {
      const QuantTensor got = quantize_float8(gpu, {.granularity = granularity}),
                        expected = quantize_float8(x, {.granularity = granularity});
      EXPECT_TRUE(equal(got.scales(), expected.scales()));
      EXPECT_TRUE(equal(got.payload(), expected.payload()));
    }
    for (const Orientation orientation : {Orientation::natural, Orientation::transposed}) {
      const MxOptions options{.element = ElementFormat::e2m1, .orientation = orientation};
      EXPECT_TRUE(equal(quantize_mx(gpu, options).payload(), quantize_mx(x, options).payload()));
    }
    EXPECT_TRUE(equal(quantize_nvfp4(gpu).payload(), quantize_nvfp4(x).payload()));
  }
}

using Float8Case = std::tuple<const char*, ElementFormat, Granularity, bool>;
class CudaFloat8CastGolden : public ::testing::TestWithParam<Float8Case> {};

TEST_P(CudaFloat8CastGolden, ScalesAndCodesAreEqual) {
  const auto& [dtype, element, granularity, power_of_two] = GetParam();
  const char* by = granularity == Granularity::tensor ? "tensor" : granularity == Granularity::row ? "row" : "col";
  const std::string name = fmt::format("{}_{}_{}{}", dtype, to_string(element), by, power_of_two ? "_p2" : "");
  const GoldenFile file("float8_cast.safetensors");
  const QuantTensor q =
      quantize_float8(on_gpu(file.tensor(fmt::format("x_{}", dtype))), {element, granularity, power_of_two});
  EXPECT_TRUE(same_bytes(fetch(q.scales()), file.tensor("scale_" + name)));
  EXPECT_TRUE(same_bytes(fetch(q.payload()), file.tensor("q_" + name)));
}

INSTANTIATE_TEST_SUITE_P(
    All, CudaFloat8CastGolden,
    ::testing::Combine(::testing::Values("bf16", "f32"), ::testing::Values(ElementFormat::e4m3, ElementFormat::e5m2),
                       ::testing::Values(Granularity::tensor, Granularity::row, Granularity::column),
                       ::testing::Bool()));

using MxCase = std::tuple<const char*, ElementFormat, MxScaleMode>;
class CudaMxCastGolden : public ::testing::TestWithParam<MxCase> {};

TEST_P(CudaMxCastGolden, ScalesAndCodesAreEqual) {
  const auto& [dtype, element, mode] = GetParam();
  const GoldenFile file("mx_cast.safetensors");
  const std::string name = fmt::format("{}_{}_{}", dtype, to_string(element), to_string(mode));
  const QuantTensor q =
      quantize_mx(on_gpu(file.tensor(fmt::format("x_{}", dtype))), {.element = element, .mode = mode});
  EXPECT_TRUE(same_bytes(fetch(q.scales()), file.tensor("scale_" + name)));
  EXPECT_TRUE(same_bytes(fetch(q.payload()), file.tensor("q_" + name)));
}

INSTANTIATE_TEST_SUITE_P(All, CudaMxCastGolden,
                         ::testing::Combine(::testing::Values("bf16", "f32"),
                                            ::testing::Values(ElementFormat::e4m3, ElementFormat::e5m2,
                                                              ElementFormat::e2m3, ElementFormat::e3m2,
                                                              ElementFormat::e2m1),
                                            ::testing::Values(MxScaleMode::floor, MxScaleMode::rceil, MxScaleMode::ceil,
                                                              MxScaleMode::even)));

TEST(CudaNvfp4CastGolden, OneAndTwoLevels) {
  const GoldenFile file("nvfp4_cast.safetensors");
  const Tensor x = on_gpu(file.tensor("x"));
  const QuantTensor one = quantize_nvfp4(x);
  EXPECT_TRUE(same_bytes(fetch(one.scales()), file.tensor("scale")));
  EXPECT_TRUE(same_bytes(fetch(one.payload()), file.tensor("q")));
  const Tensor global = nvfp4_global_scale(amax(x, Granularity::tensor));
  EXPECT_TRUE(same_bytes(fetch(global), file.tensor("pts")));
  const QuantTensor two = quantize_nvfp4(x, global);
  EXPECT_TRUE(same_bytes(fetch(two.scales()), file.tensor("scale2")));
  EXPECT_TRUE(same_bytes(fetch(two.payload()), file.tensor("q2")));
}

}  // namespace
}  // namespace quench::testing
