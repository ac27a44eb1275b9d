#include "core/ops/quantize/transpose_codes.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/ops/quantize/quantize.h"
#include "tests/core/ops/op_testing.h"

namespace quench::testing {
namespace {

TEST(TransposeCodes, IsTheCastWithATransposedPayload) {
  std::uint32_t seed = 0;
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 7}, Shape{64, 64}, Shape{130, 65}, Shape{0, 4}, Shape{509, 24}})
    for (const Granularity granularity : {Granularity::tensor, Granularity::column}) {
      Generator random(++seed);
      const Tensor x = random.normal(shape, DType::bf16);
      const Tensor scale = float8_scale(amax(x, granularity), ElementFormat::e4m3, false);
      const QuantTensor natural = cast_float8(x, scale, ElementFormat::e4m3, granularity);
      const QuantTensor wanted = cast_float8(x, scale, ElementFormat::e4m3, granularity, Orientation::transposed);
      const QuantTensor got = with_transposed_payload(natural);
      EXPECT_EQ(got.format(), wanted.format());
      EXPECT_TRUE(same_bits(got.payload(), wanted.payload())) << shape.to_string();
      EXPECT_TRUE(same_bits(got.scales(), wanted.scales()));
    }
}

TEST(TransposeCodes, RefusesWhatDoesNotFit) {
  const Tensor codes = Tensor::zeros({4, 6}, DType::u8);
  EXPECT_THROW(transpose_codes({codes, Tensor::zeros({4, 6}, DType::u8)}), Error);
  EXPECT_THROW(transpose_codes({codes, Tensor::zeros({6, 4}, DType::f8_e4m3)}), Error);
  EXPECT_THROW(transpose_codes({Tensor::zeros({4, 6}, DType::bf16), Tensor::zeros({6, 4}, DType::bf16)}), Error);
  EXPECT_THROW(transpose_codes({codes.transpose(0, 1), Tensor::zeros({4, 6}, DType::u8)}), Error);
  // Scales by row would run along the wrong axis.
  Generator random(1);
  EXPECT_THROW((void)with_transposed_payload(
                   quantize_float8(random.normal({4, 6}, DType::f32), {.granularity = Granularity::row})),
               Error);
}

}  // namespace
}  // namespace quench::testing
