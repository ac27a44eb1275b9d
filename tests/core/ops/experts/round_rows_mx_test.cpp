#include "core/ops/experts/round_rows_mx.h"

#include "core/ops/experts/token_permutation.h"
#include "core/ops/quantize/round_mx.h"
#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

Tensor rounded(const Tensor& x, Orientation orientation, MxScaleMode mode) {
  const Tensor out = Tensor::empty_like(x);
  round_mx({.x = x, .out = out, .mode = mode, .orientation = orientation});
  return out;
}

// Rows of zeros among them, and tokens with several rows.
Tensor pairs_of(std::int64_t rows, std::int64_t tokens, std::int64_t choices) {
  Generator random(3);
  const Tensor pairs = random.integers(rows, tokens * choices);
  for (std::int64_t r = 5; r < rows; r += 9) pairs.data<std::int32_t>()[r] = -1;
  return pairs;
}

// Values of many magnitudes: where a block's scale makes an element small, it loses bits.
Tensor wide_range(Generator& random, const Shape& shape, DType dtype) {
  const Tensor x = random.normal(shape, dtype);
  for (std::int64_t i = 0; i < x.numel(); ++i)
    set_element(x, i, std::ldexp(get_element(x, i), static_cast<int>(random.between(-20, 20))));
  return x;
}

TEST(RoundRowsMx, IsTheCopyAndARoundingForEachForm) {
  constexpr std::int64_t kTokens = 20, kChoices = 3, kPairs = 64, kWidth = 96;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const MxScaleMode mode : {MxScaleMode::rceil, MxScaleMode::even})
      for (const bool gathered : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", to_string(dtype), to_string(mode), gathered));
        Generator random(7);
        const Tensor x = wide_range(random, {gathered ? kTokens : kPairs, kWidth}, dtype);
        const Tensor pairs = gathered ? pairs_of(kPairs, kTokens, kChoices) : Tensor();
        Tensor copies = x.clone();
        if (gathered) {
          copies = Tensor::empty({kPairs, kWidth}, dtype);
          permute_tokens({.x = x, .pairs = pairs, .choices = kChoices, .out = copies});
        }
        const Tensor columns = Tensor::empty_like(copies), rows = Tensor::empty_like(copies);
        const GroupRows of_x{.x = x, .ends = {}, .pairs = pairs, .choices = kChoices};
        round_rows_mx({.rows = of_x, .rowwise = columns, .columnwise = rows, .mode = mode});
        EXPECT_TRUE(same_bits(columns, rounded(copies, Orientation::natural, mode)));
        EXPECT_TRUE(same_bits(rows, rounded(copies, Orientation::transposed, mode)));
        EXPECT_FALSE(same_bits(columns, rows));
        const Tensor alone = Tensor::empty_like(copies);
        round_rows_mx({.rows = of_x, .rowwise = {}, .columnwise = alone, .mode = mode});
        EXPECT_TRUE(same_bits(alone, rows));
        if (gathered) continue;
        const Tensor turned = Tensor::empty_like(x);
        round_rows_mx({.rows = of_x, .rowwise = x, .columnwise = turned, .mode = mode});
        EXPECT_TRUE(same_bits(x, columns)) << "in place";
        EXPECT_TRUE(same_bits(turned, rows)) << "beside a form in place";
      }
}

TEST(RoundRowsMx, RefusesWhatDoesNotFit) {
  const auto matrix = [](std::int64_t rows, std::int64_t columns) {
    return Tensor::zeros({rows, columns}, DType::f32);
  };
  const auto call = [&](const Tensor& x, const Tensor& rowwise, const Tensor& columnwise) {
    round_rows_mx({.rows = {.x = x, .ends = {}, .pairs = {}}, .rowwise = rowwise, .columnwise = columnwise});
  };
  EXPECT_THROW(call(matrix(32, 48), matrix(32, 48), {}), Error) << "48 columns";
  EXPECT_THROW(call(matrix(16, 32), {}, matrix(16, 32)), Error) << "16 rows";
  EXPECT_THROW(call(matrix(32, 32), matrix(32, 64), {}), Error);
  EXPECT_THROW(call(matrix(32, 32), {}, {}), Error) << "no form";
  EXPECT_NO_THROW(call(matrix(16, 32), matrix(16, 32), {})) << "blocks along the columns take any number of rows";
}

}  // namespace
}  // namespace quench
