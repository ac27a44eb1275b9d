#include "core/ops/rope.h"

#include "core/ops/quantize/quantize.h"
#include "tests/core/ops/op_testing.h"
#include "tests/core/ops/rope_tables.h"

namespace quench {
namespace {

using namespace testing;

TEST(Rope, RotatesHalvesOrNeighboursByThePositionsAngle) {
  std::uint32_t seed = 1;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : {Shape{1, 1, 2}, Shape{7, 3, 8}, Shape{50, 4, 64}, Shape{3, 2, 100}, Shape{200, 3, 34}})
      for (const auto& [inverse, interleaved] : {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
        Generator random(++seed);
        const std::int64_t n = shape[0], heads = shape[1], dim = shape[2], half = dim / 2;
        const Tables tables(40, half);
        const Tensor x = random.normal_view(shape, dtype, 7), positions = random.integers(n, 40);
        const std::vector<double> before = values(x);
        std::vector<double> expected(before.size());
        for (std::int64_t row = 0; row < n; ++row)
          for (std::int64_t h = 0; h < heads; ++h)
            for (std::int64_t i = 0; i < half; ++i) {
              const auto at = static_cast<std::size_t>((row * heads + h) * dim + (interleaved ? 2 * i : i));
              const auto other = at + static_cast<std::size_t>(interleaved ? 1 : half);
              const std::int64_t entry = positions.data<std::int32_t>()[row] * half + i;
              const double c = tables.cos.data<float>()[entry],
                           s = tables.sin.data<float>()[entry] * (inverse ? -1 : 1);
              const double a = before[at], b = before[other];
              expected[at] = a * c - b * s;
              expected[other] = b * c + a * s;
            }
        rope({.x = x,
              .cos = tables.cos,
              .sin = tables.sin,
              .positions = positions,
              .inverse = inverse,
              .interleaved = interleaved});
        EXPECT_TRUE(close(x, expected, rounding(dtype) * 1.01, 5e-7));
      }
}

TEST(Rope, TheInverseUndoesTheRotation) {
  Generator random(9);
  const Tables tables(16, 16);
  const Tensor x = random.normal({16, 2, 32}, DType::f32), positions = random.integers(16, 16);
  const std::vector<double> before = values(x);
  rope({.x = x, .cos = tables.cos, .sin = tables.sin, .positions = positions});
  rope({.x = x, .cos = tables.cos, .sin = tables.sin, .positions = positions, .inverse = true});
  EXPECT_TRUE(close(x, before, 0, 1e-6));
}

TEST(Rope, LeavesTheRestOfAFusedProjectionAlone) {
  Generator random(10);
  const Tables tables(8, 4);
  const Tensor fused = random.normal({5, 6 * 8}, DType::f32), positions = random.integers(5, 8);
  const std::vector<double> before = values(fused);
  const Tensor heads = fused.strided({5, 2, 8}, {48, 8, 1}, 16);  // heads 2 and 3
  rope({.x = heads, .cos = tables.cos, .sin = tables.sin, .positions = positions});
  const std::vector<double> after = values(fused);
  for (std::size_t i = 0; i < after.size(); ++i) {
    const bool inside = i % 48 >= 16 && i % 48 < 32;
    EXPECT_TRUE(inside || after[i] == before[i]) << i;
  }
}

// RoPE of the first elements of each head: a view of them.
TEST(Rope, RotatesAPartOfEachHead) {
  Generator random(11);
  const Tables tables(8, 3);
  for (const bool interleaved : {false, true}) {
    const Tensor fused = random.normal({5, 4 * 16}, DType::f32), positions = random.integers(5, 8);
    const std::vector<double> before = values(fused);
    const Tensor part = fused.strided({5, 3, 6}, {64, 16, 1}, 0);
    const std::vector<double> rotated = values(part);
    const Tensor alone = Tensor::from_values<float>({5, 3, 6}, std::vector<float>(rotated.begin(), rotated.end()));
    for (const Tensor& x : {part, alone})
      rope({.x = x, .cos = tables.cos, .sin = tables.sin, .positions = positions, .interleaved = interleaved});
    EXPECT_EQ(values(part), values(alone));
    const std::vector<double> after = values(fused);
    for (std::size_t i = 0; i < after.size(); ++i)
      EXPECT_TRUE((i % 64 < 48 && i % 16 < 6) || after[i] == before[i]) << i;
  }
}

TEST(Rope, RejectsBadArguments) {
  const Tables tables(4, 4);
  const Tensor x = Tensor::zeros({2, 1, 8}, DType::f32), positions = Tensor::zeros({2}, DType::i32);
  positions.data<std::int32_t>()[1] = 4;
  try {
    rope({.x = x, .cos = tables.cos, .sin = tables.sin, .positions = positions});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("position 4 of row 1"), std::string::npos) << error.what();
  }
  positions.data<std::int32_t>()[1] = -1;
  EXPECT_THROW(rope({.x = x, .cos = tables.cos, .sin = tables.sin, .positions = positions}), Error);
  positions.data<std::int32_t>()[1] = 3;
  EXPECT_THROW(
      rope({.x = Tensor::zeros({2, 1, 7}, DType::f32), .cos = tables.cos, .sin = tables.sin, .positions = positions}),
      Error);
  EXPECT_THROW(
      rope({.x = Tensor::zeros({2, 1, 16}, DType::f32), .cos = tables.cos, .sin = tables.sin, .positions = positions}),
      Error);
  rope({.x = Tensor::zeros({0, 1, 8}, DType::f32),
        .cos = tables.cos,
        .sin = tables.sin,
        .positions = Tensor::zeros({0}, DType::i32)});
}

TEST(Rope, CodesMatchCastOfRotatedMatrix) {
  std::uint32_t seed = 40;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool inverse : {false, true}) {
      Generator random(++seed);
      const Tables tables(40, 8);
      const Shape shape{32, 6 * 16};
      const Tensor x = random.normal(shape, dtype), rotated = x.clone(), before = x.clone(),
                   positions = random.integers(32, 40);
      rope({.x = rotated.strided({32, 4, 16}, {96, 16, 1}, 0),
            .cos = tables.cos,
            .sin = tables.sin,
            .positions = positions,
            .inverse = inverse});
      const Tensor most = amax(rotated, Granularity::tensor), scale = float8_scale(most, ElementFormat::e5m2, false);
      const Float8Pair expected = cast_float8_pair(rotated, scale, ElementFormat::e5m2);
      const auto empty = [&](const QuantTensor& like) {
        return QuantTensor(like.format(), shape, dtype, Tensor::empty_like(like.payload()), scale);
      };
      const QuantOutputs outputs{.amax = Tensor::zeros({}, DType::f32),
                                 .codes = empty(expected.natural),
                                 .transposed_codes = empty(expected.transposed)};
      rope_codes({.x = x,
                  .heads = 4,
                  .cos = tables.cos,
                  .sin = tables.sin,
                  .positions = positions,
                  .inverse = inverse,
                  .quant_outputs = outputs});
      EXPECT_TRUE(same_bits(outputs.codes.payload(), expected.natural.payload()));
      EXPECT_TRUE(same_bits(outputs.transposed_codes.payload(), expected.transposed.payload()));
      EXPECT_TRUE(same_bits(outputs.amax, most));
      EXPECT_TRUE(same_bits(x, before));
      const auto error_of = [&](const Tensor& of, std::int64_t heads, const QuantOutputs& wanted) -> std::string {
        try {
          rope_codes({.x = of,
                      .heads = heads,
                      .cos = tables.cos,
                      .sin = tables.sin,
                      .positions = positions,
                      .quant_outputs = wanted});
        } catch (const Error& error) {
          return error.what();
        }
        return "no error";
      };
      EXPECT_NE(error_of(x, 7, outputs).find("7 heads of 16 elements"), std::string::npos);
      EXPECT_NE(error_of(x, 4, {}).find("neither the result nor codes"), std::string::npos);
      EXPECT_NE(error_of(x.narrow(1, 0, 64), 4, outputs).find("contiguous"), std::string::npos);
    }
}

}  // namespace
}  // namespace quench
