// NF4 on the GPU against the CPU's, bit by bit.

#include "core/ops/quantize/nf4.h"

#include "tests/cuda/quantize/quantize_testing.h"

namespace quench::testing {
namespace {

TEST(CudaNf4, ValuesMatchCpu) {
  std::uint64_t seed = 0;
  for (const Shape& shape : {Shape{64}, Shape{3, 64}, Shape{130, 320}, Shape{257, 1024}})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor x = input(shape, dtype, 0, ++seed);
      const Nf4Tensor expected = quantize_nf4(x), ours = quantize_nf4(on_gpu(x));
      EXPECT_TRUE(equal(ours.codes, expected.codes));
      EXPECT_TRUE(equal(ours.scales, expected.scales));
      EXPECT_TRUE(equal(ours.factors, expected.factors));
      EXPECT_TRUE(equal(ours.mean, expected.mean));
      const Tensor out = Tensor::empty_like(x), gpu = Tensor::empty_like(on_gpu(x));
      dequantize_nf4({expected, out});
      dequantize_nf4({ours, gpu});
      EXPECT_TRUE(equal(gpu, out)) << shape.to_string();
    }
}

TEST(CudaNf4, BlocksThatAreNotFiniteAreRefused) {
  for (const float value : {std::nanf(""), INFINITY, -INFINITY}) {
    const Tensor x = input({4, 320}, DType::f32, 0, 3);
    x.data<float>()[777] = value;
    EXPECT_THROW((void)quantize_nf4(on_gpu(x)), Error);
  }
}

// Tiles and blocks that end within a CTA, rows that no vector store divides, and columns that blocks do not.
TEST(CudaNf4, Float8CodesMatchCpu) {
  std::uint64_t seed = 0;
  for (const Shape& shape : {Shape{1, 64}, Shape{16, 128}, Shape{130, 320}, Shape{257, 1024}, Shape{384, 192},
                             Shape{1000, 2048}, Shape{64, 24}, Shape{2, 32}})
    for (const bool power_of_two : {false, true}) {
      const Tensor x = input(shape, DType::bf16, 0, ++seed);
      const Nf4Tensor host = quantize_nf4(x), gpu = quantize_nf4(on_gpu(x));
      for (const auto& [granularity, orientation] : {std::pair{Granularity::tensor, Orientation::natural},
                                                     {Granularity::tensor, Orientation::transposed},
                                                     {Granularity::row, Orientation::natural},
                                                     {Granularity::column, Orientation::transposed}}) {
        SCOPED_TRACE(shape.to_string() + " by " + std::string(to_string(granularity)));
        const Tensor most = nf4_amax(gpu, granularity), expected_most = nf4_amax(host, granularity);
        ASSERT_TRUE(equal(most, expected_most));
        const Tensor scale = float8_scale(most, ElementFormat::e4m3, power_of_two),
                     expected_scale = float8_scale(expected_most, ElementFormat::e4m3, power_of_two);
        const QuantTensor codes = cast_nf4_float8(gpu, scale, granularity, orientation);
        EXPECT_TRUE(equal(codes.scales(), expected_scale));
        EXPECT_TRUE(equal(codes.payload(), cast_nf4_float8(host, expected_scale, granularity, orientation).payload()));
      }
    }
}

}  // namespace
}  // namespace quench::testing
