// int8 casts and GEMMs compared with the CPU's: by wgmma where the device has it, and by mma.sync.

#include <gtest/gtest.h>

#include "core/device/kernel_families.h"
#include "core/ops/elementwise.h"
#include "core/ops/quantize/quantize.h"
#include "core/ops/scaled_gemm.h"
#include "tests/cuda/fused_testing.h"

namespace quench::testing {
namespace {

constexpr Float8Options kRows{.element = ElementFormat::int8, .granularity = Granularity::row};

QuantTensor quantized(Generator& random, std::int64_t rows, std::int64_t columns) {
  const Tensor x = random.normal({rows, columns}, DType::f32);
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto size = static_cast<float>(std::exp2(random.between(-3, 3)));
    for (std::int64_t c = 0; c < columns; ++c) x.data<float>()[r * columns + c] *= size;
  }
  const Tensor values = Tensor::empty(x.shape(), DType::bf16);
  cast({x, values});
  return quantize_float8(values, kRows);
}

QuantTensor moved(const QuantTensor& x) {
  return {x.format(), x.shape(), x.source_dtype(), on_gpu(x.payload()), on_gpu(x.scales())};
}

struct Int8Case {
  std::int64_t m, n, k;
  DType c = DType::bf16;
  float beta = 0;
};

// K <= 1040: sums below 2^24 are exact on the CPU too, so that f32 results have equal bits without beta.
TEST(CudaInt8Gemm, EqualsTheCpu) {
  Generator random(7);
  for (const bool wgmma : {true, false}) {
    const KernelFamilyScope scope({.off = wgmma ? KernelFamilySet() : KernelFamilySet(KernelFamily::sm90_int8_gemm)});
    for (const Int8Case& test :
         {Int8Case{1, 16, 16}, Int8Case{17, 48, 80}, Int8Case{130, 272, 128, DType::f32}, Int8Case{256, 512, 1024},
          Int8Case{300, 528, 1040, DType::f32}, Int8Case{200, 320, 512, DType::f32, 1.0f},
          Int8Case{200, 320, 512, DType::bf16, 1.0f}, Int8Case{4200, 640, 256}, Int8Case{2304, 272, 144, DType::f32},
          Int8Case{2100, 256, 256, DType::f32, 1.0f}}) {
      SCOPED_TRACE(
          fmt::format("{} x {} x {} {} beta {} wgmma {}", test.m, test.n, test.k, to_string(test.c), test.beta, wgmma));
      const QuantTensor a = quantized(random, test.m, test.k), b = quantized(random, test.n, test.k);
      const Tensor start = random.normal({test.m, test.n}, DType::f32);
      Tensor expected = Tensor::empty(start.shape(), test.c);
      test.c == DType::f32 ? expected.copy_from(start) : cast({start, expected});
      const Tensor ours = on_gpu(expected);
      gemm(ScaledGemmArgs{.a = a, .b = b, .c = expected, .beta = test.beta});
      gemm(ScaledGemmArgs{.a = moved(a), .b = moved(b), .c = ours, .beta = test.beta});
      const Tensor result = on_cpu(ours);
      if (test.beta == 0.0f) {
        EXPECT_TRUE(same_bits(result, expected));
        continue;
      }
      Tensor left = Tensor::empty(start.shape(), DType::f32), right = Tensor::empty(start.shape(), DType::f32);
      test.c == DType::f32 ? left.copy_from(result) : cast({result, left});
      test.c == DType::f32 ? right.copy_from(expected) : cast({expected, right});
      for (std::int64_t i = 0; i < left.numel(); ++i)
        ASSERT_NEAR(left.data<float>()[i], right.data<float>()[i],
                    (test.c == DType::f32 ? 1e-5 : 0.02) * (1 + std::abs(right.data<float>()[i])))
            << i;
    }
  }
}

// Sums of equal signs beyond 2^24, and beyond 2^31 in total: exact parts of 65,536, rounded to f32.
TEST(CudaInt8Gemm, DeepSums) {
  for (const std::int64_t k : {std::int64_t{4096}, std::int64_t{131072}, std::int64_t{147456}}) {
    const Tensor ones = Tensor::empty({16, k}, DType::f32);
    for (std::int64_t i = 0; i < ones.numel(); ++i) ones.data<float>()[i] = 127.0f;
    const QuantTensor x = moved(quantize_float8(ones, kRows));
    for (const bool wgmma : {true, false}) {
      const KernelFamilyScope scope({.off = wgmma ? KernelFamilySet() : KernelFamilySet(KernelFamily::sm90_int8_gemm)});
      const Tensor c = on_gpu(Tensor::zeros({16, 16}, DType::f32));
      gemm(ScaledGemmArgs{.a = x, .b = x, .c = c});
      const Tensor result = on_cpu(c);
      const double expected = 127.0 * 127.0 * static_cast<double>(k);
      for (std::int64_t i = 0; i < 256; ++i) ASSERT_NEAR(result.data<float>()[i], expected, 1e-6 * expected) << k;
    }
  }
}

TEST(CudaInt8Cast, HasTheBitsOfTheCpu) {
  Generator random(8);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : {Shape{3, 7}, Shape{64, 256}, Shape{130, 2048}, Shape{33, 8200}}) {
      const Tensor whole = random.normal(shape, DType::f32);
      for (std::int64_t c = 0; c < shape[1]; ++c) whole.data<float>()[shape[1] + c] = 0.0f;
      Tensor x = Tensor::empty(shape, dtype);
      dtype == DType::f32 ? x.copy_from(whole) : cast({whole, x});
      const Tensor there = on_gpu(x);
      for (const bool stochastic : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} stochastic {}", x.describe(), shape.to_string(), stochastic));
        Float8Options options = kRows;
        if (stochastic) options.rounding.key = RandomKey{.seed = 3, .stream = 4};
        const QuantTensor here = quantize_float8(x, options), ours = quantize_float8(there, options);
        EXPECT_TRUE(same_bits(on_cpu(ours.payload()), here.payload()));
        EXPECT_TRUE(same_bits(on_cpu(ours.scales()), here.scales()));
        const auto columns = [&](const Tensor& t) {
          return cast_float8(t, float8_scale(amax(t, Granularity::column), ElementFormat::int8, false, dtype),
                             ElementFormat::int8, Granularity::column, Orientation::transposed, options.rounding);
        };
        const QuantTensor turned = columns(x), ours_turned = columns(there);
        EXPECT_TRUE(same_bits(on_cpu(ours_turned.payload()), turned.payload()));
        EXPECT_TRUE(same_bits(on_cpu(ours_turned.scales()), turned.scales()));
        EXPECT_TRUE(same_bits(on_cpu(dequantize(ours, DType::f32)), dequantize(here, DType::f32)));
      }
    }
}

}  // namespace
}  // namespace quench::testing
