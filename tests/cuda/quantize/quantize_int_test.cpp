// The integer casts, dropout and fake quantization on the GPU against the CPU's, bit by bit.

#include "core/ops/quantize/quantize_int.h"

#include "core/ops/dropout.h"
#include "core/ops/quantize/fake_quantize_float8.h"
#include "tests/cuda/quantize/quantize_testing.h"

namespace quench::testing {
namespace {

constexpr IntMapping kMappings[] = {IntMapping::symmetric,
                                    IntMapping::symmetric_no_clipping,
                                    IntMapping::asymmetric,
                                    IntMapping::float_zero_point,
                                    IntMapping::truncated_zero_point,
                                    IntMapping::binary,
                                    IntMapping::ternary,
                                    IntMapping::stretched};

Tensor empty_like_on_gpu(const Tensor& t) {
  return Tensor::empty(t.shape(), t.dtype(), on_gpu(Tensor::zeros({1}, DType::f32)).device());
}

TEST(CudaQuantizeInt, EveryMappingMatchesTheCpu) {
  std::uint64_t seed = 0;
  struct Case {
    Shape shape;
    std::int64_t group;
  };
  const std::vector<Case> cases = {{{3, 7}, 0},      {{5, 40}, 5},    {{33, 64}, 8},   {{130, 256}, 16},
                                   {{7, 96}, 32},    {{64, 128}, 64}, {{9, 512}, 128}, {{3, 1024}, 256},
                                   {{2, 3, 96}, 48}, {{4, 1025}, 0},  {{2, 16384}, 0}, {{513, 520}, 104}};
  for (const auto& [shape, group] : cases)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const IntMapping mapping : kMappings)
        for (const std::int64_t shift : {0, 1}) {
          const IntQuantOptions options{.bits = 2 + static_cast<int>(++seed % 7),
                                        .mapping = mapping,
                                        .group_size = group,
                                        .scale_dtype = seed % 3 == 0 ? std::optional(DType::bf16) : std::nullopt,
                                        .division = shift == 0 ? IntDivision::reciprocal : IntDivision::quotient};
          const Tensor x = input(shape, dtype, shift, seed);
          if (seed % 5 == 0) spoil(x, 211);
          SCOPED_TRACE(fmt::format("{} {} group {} mapping {} shift {} seed {}", shape.to_string(), to_string(dtype),
                                   group, static_cast<int>(mapping), shift, seed));
          const Tensor device_x = on_gpu(x);
          const IntQuantized ours = quantize_int(device_x, options), expected = quantize_int(x, options);
          EXPECT_TRUE(equal(ours.scales.scales, expected.scales.scales));
          if (expected.scales.zero_points.defined()) {
            EXPECT_TRUE(equal(ours.scales.zero_points, expected.scales.zero_points));
          }
          EXPECT_TRUE(equal(ours.codes, expected.codes));
          EXPECT_TRUE(equal(dequantize_int(ours.codes, ours.scales, dtype, options),
                            dequantize_int(expected.codes, expected.scales, dtype, options)));
          const Tensor mask = Tensor::empty(range_mask_shape(shape), DType::u8), out = Tensor::empty_like(x);
          fake_quantize_int({x, out, mask, {}, {}, options});
          const Tensor gpu_mask = empty_like_on_gpu(mask), gpu_out = empty_like_on_gpu(out);
          fake_quantize_int({device_x, gpu_out, gpu_mask, {}, {}, options});
          EXPECT_TRUE(equal(gpu_out, out));
          EXPECT_TRUE(equal(gpu_mask, mask));
          fake_quantize_int({device_x, gpu_out, {}, ours.scales.scales, ours.scales.zero_points, options});
          EXPECT_TRUE(equal(gpu_out, out)) << "given scales";
          zero_masked({out, mask});
          zero_masked({gpu_out, gpu_mask});
          EXPECT_TRUE(equal(gpu_out, out)) << "masked";
        }
}

// Rows as groups take another kernel for each range of lengths: from a warp a row to rows that no block holds.
TEST(CudaQuantizeInt, RowsOfEveryLengthMatchTheCpu) {
  std::uint64_t seed = 0;
  struct Case {
    Shape shape;
    std::int64_t group;
  };
  const std::vector<Case> cases = {{{5, 8}, 0},     {{9, 136}, 0},    {{6, 512}, 0},    {{7, 520}, 0},
                                   {{7, 1024}, 0},  {{6, 2048}, 0},   {{5, 2056}, 0},   {{4, 4096}, 0},
                                   {{3, 4104}, 0},  {{5, 8192}, 0},   {{3, 14336}, 0},  {{2, 28672}, 0},
                                   {{2, 32776}, 0}, {{2, 40001}, 0},  {{3, 2047}, 0},   {{2, 8191}, 0},
                                   {{300, 24}, 24}, {{3, 4096}, 512}, {{3, 6144}, 768}, {{1, 65536}, 0}};
  for (const auto& [shape, group] : cases)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const IntMapping mapping : {IntMapping::asymmetric, IntMapping::symmetric, IntMapping::binary,
                                       IntMapping::ternary, IntMapping::stretched})
        for (const std::int64_t shift : {0, 1})
          for (const bool unusual : {false, true}) {
            const IntQuantOptions options{.bits = mapping == IntMapping::symmetric ? 4 : 8,
                                          .mapping = mapping,
                                          .group_size = group,
                                          .scale_dtype = std::nullopt,
                                          .division = seed % 2 == 0 ? IntDivision::reciprocal : IntDivision::quotient};
            const Tensor x = input(shape, dtype, shift, ++seed);
            if (unusual) spoil(x, x.numel() / 3 + 1);
            SCOPED_TRACE(fmt::format("{} {} group {} mapping {} shift {} unusual {}", shape.to_string(),
                                     to_string(dtype), group, static_cast<int>(mapping), shift, unusual));
            const Tensor mask = Tensor::empty(range_mask_shape(shape), DType::u8), out = Tensor::empty_like(x);
            fake_quantize_int({x, out, mask, {}, {}, options});
            const Tensor device_x = on_gpu(x), gpu_mask = empty_like_on_gpu(mask), gpu_out = empty_like_on_gpu(out);
            fake_quantize_int({device_x, gpu_out, gpu_mask, {}, {}, options});
            EXPECT_TRUE(equal(gpu_out, out));
            EXPECT_TRUE(equal(gpu_mask, mask));
            fake_quantize_int({device_x, device_x, {}, {}, {}, options});
            EXPECT_TRUE(equal(device_x, out)) << "in place";
          }
}

TEST(CudaZeroMasked, ZerosMatchCpu) {
  std::uint64_t seed = 0;
  for (const Shape& shape : {Shape{1, 3}, Shape{7, 13}, Shape{5, 8}, Shape{3, 128}, Shape{9, 136}, Shape{64, 2048}})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const std::int64_t mask_shift : {0, 1}) {
        const Tensor x = input(shape, dtype, 0, ++seed);
        const Shape mask_shape = range_mask_shape(shape);
        const Tensor whole = Tensor::empty({mask_shape.numel() + mask_shift}, DType::u8);
        // Bytes of every kind, all ones among them, and long runs of those.
        for (std::int64_t i = 0; i < whole.numel(); ++i)
          whole.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(i / 40 % 2 == 0 ? 255 : (i * 37 + 11) % 256);
        const Tensor mask = whole.narrow(0, mask_shift, mask_shape.numel()).view(mask_shape);
        const Tensor gpu = on_gpu(x);
        zero_masked({x, mask});
        zero_masked({gpu, on_gpu(mask)});
        EXPECT_TRUE(equal(gpu, x)) << shape.to_string() << " shift " << mask_shift;
      }
}

TEST(CudaFakeQuantizeFloat8, ValuesMatchCpu) {
  std::uint64_t seed = 0;
  for (const Shape& shape : {Shape{1, 1}, Shape{5, 37}, Shape{130, 257}, Shape{7, 136}, Shape{64, 1024}, Shape{6, 2048},
                             Shape{5, 4096}, Shape{3, 8192}, Shape{3, 16384}, Shape{2, 28672}, Shape{2, 40000}})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const Granularity granularity : {Granularity::row, Granularity::tensor})
        for (const std::int64_t shift : {0, 1}) {
          const Tensor x = input(shape, dtype, shift, ++seed), out = Tensor::empty_like(x);
          if (seed % 3 == 0) spoil(x, 211);
          const DType scale = seed % 2 == 0 ? DType::f32 : DType::bf16;
          fake_quantize_float8({x, amax(x, granularity), out, scale});
          const Tensor device_x = on_gpu(x), gpu = empty_like_on_gpu(out);
          fake_quantize_float8({device_x, amax(device_x, granularity), gpu, scale});
          EXPECT_TRUE(equal(gpu, out)) << shape.to_string() << " seed " << seed;
          if (granularity != Granularity::row) continue;
          fake_quantize_float8({device_x, {}, gpu, scale});
          EXPECT_TRUE(equal(gpu, out)) << shape.to_string() << " seed " << seed << ", amax found on the way";
        }
}

TEST(CudaDropout, DrawsMatchCpu) {
  std::uint64_t seed = 0;
  for (const Shape& shape : {Shape{1}, Shape{5, 37}, Shape{130, 257}, Shape{64, 1024}})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const std::int64_t shift : {0, 1}) {
        const Tensor x = input(shape, dtype, shift, ++seed), out = Tensor::empty_like(x);
        const RandomKey key{.seed = seed, .stream = 3, .step = 1};
        dropout({.x = x, .out = out, .probability = 0.1f, .key = key});
        const Tensor gpu = empty_like_on_gpu(out);
        dropout({.x = on_gpu(x), .out = gpu, .probability = 0.1f, .key = key});
        EXPECT_TRUE(equal(gpu, out)) << shape.to_string();
      }
}

}  // namespace
}  // namespace quench::testing
