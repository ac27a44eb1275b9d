#include "core/ops/experts/token_permutation.h"

#include <algorithm>

#include "core/ops/quantize/round_mx.h"
#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

struct Rows {
  Tensor counts, ends, rows, pairs;
};

Rows rows_of(const Tensor& experts, std::int64_t count, std::int64_t alignment) {
  Rows r{Tensor::empty({count}, DType::f32), Tensor::empty({count}, DType::i32),
         Tensor::empty(experts.shape(), DType::i32),
         Tensor::empty({permuted_row_capacity(experts.numel(), count, alignment)}, DType::i32)};
  token_permutation({experts, alignment, r.counts, r.ends, r.rows, r.pairs});
  return r;
}

// Where no token came, kernels still have rows: of zeros, whose gradients are zeros.
TEST(TokenPermutation, NoPairsMakeRowsOfZeros) {
  constexpr std::int64_t kAlignment = 16, kWidth = 6;
  const Rows r = rows_of(Tensor::empty({0, 1}, DType::i32), 3, kAlignment);
  EXPECT_EQ(values(r.ends), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(values(r.pairs), std::vector<double>(kAlignment, -1));
  const Tensor out = Tensor::empty({kAlignment, kWidth}, DType::f32);
  fill(out, 7.0);
  permute_tokens({.x = Tensor::empty({0, kWidth}, DType::f32), .pairs = r.pairs, .choices = 1, .out = out});
  EXPECT_EQ(values(out), std::vector<double>(kAlignment * kWidth, 0.0));
  Generator random(1);
  const Tensor gate_up = random.normal({kAlignment, 2 * kWidth}, DType::f32),
               weights = Tensor::empty({0, 1}, DType::f32);
  const Tensor dgate_up = random.normal(gate_up.shape(), DType::f32);
  expert_swiglu_backward({.dout = out,
                          .gate_up = gate_up,
                          .weights = weights,
                          .pairs = r.pairs,
                          .dgate_up = dgate_up,
                          .dweights = Tensor::empty({0, 1}, DType::f32),
                          .out = {}});
  EXPECT_EQ(values(dgate_up), std::vector<double>(2 * kAlignment * kWidth, 0.0));
}

TEST(TokenPermutation, GroupTheFirstRowsByExpertInTheOrderOfTheTokens) {
  for (const std::int64_t alignment : {1, 16, 32})
    for (const auto& [tokens, choices, count] : {std::tuple{50, 2, 8}, {7, 1, 64}, {1, 4, 4}, {33, 3, 1}}) {
      SCOPED_TRACE(fmt::format("{} x {} to {}, alignment {}", tokens, choices, count, alignment));
      Generator random(11);
      const Tensor experts = random.integers(tokens * choices, count).view({tokens, choices});
      const Rows r = rows_of(experts, count, alignment);
      const std::int32_t* chosen = experts.data<std::int32_t>();
      std::int32_t row = 0;
      std::vector<std::int32_t> pairs(static_cast<std::size_t>(r.pairs.numel()), -1);
      for (std::int32_t e = 0; e < count; ++e) {
        std::int32_t found = 0;
        for (std::int32_t i = 0; i < tokens * choices; ++i) {
          if (chosen[i] != e) continue;
          EXPECT_EQ(r.rows.data<std::int32_t>()[i], row + found);
          pairs[static_cast<std::size_t>(row + found++)] = i;
        }
        EXPECT_EQ(r.counts.data<float>()[e], static_cast<float>(found));
        row += static_cast<std::int32_t>((found + alignment - 1) / alignment * alignment);
        EXPECT_EQ(r.ends.data<std::int32_t>()[e], row);
      }
      EXPECT_TRUE(std::equal(pairs.begin(), pairs.end(), r.pairs.data<std::int32_t>()));
    }
}

TEST(TokenPermutation, CapacityHoldsTheWorstCase) {
  // Every expert has one pair more than a multiple of the alignment.
  EXPECT_EQ(permuted_row_capacity(4 * 17, 4, 16), 4 * 32);
  EXPECT_EQ(permuted_row_capacity(3, 8, 16), 48) << "no more experts than pairs have rows";
  EXPECT_EQ(permuted_row_capacity(40, 8, 1), 40);
  Tensor experts = Tensor::zeros({68, 1}, DType::i32);
  for (int i = 0; i < 68; ++i) experts.data<std::int32_t>()[i] = i % 4;
  EXPECT_EQ(rows_of(experts, 4, 16).ends.data<std::int32_t>()[3], 128);
}

TEST(TokenPermutation, GatherAndSumAreEachOthersDerivative) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(to_string(dtype));
    constexpr std::int64_t kTokens = 20, kChoices = 3, kWidth = 19;
    Generator random(5);
    const Tensor experts = random.integers(kTokens * kChoices, 6).view({kTokens, kChoices});
    const Rows r = rows_of(experts, 6, 16);
    const Tensor x = random.normal({kTokens, kWidth}, dtype);
    const Tensor rows = Tensor::empty({r.pairs.size(0), kWidth}, dtype);
    permute_tokens({x, r.pairs, kChoices, rows});
    const auto in = values(x);
    std::vector<double> copies(static_cast<std::size_t>(rows.numel())), sums(in.size());
    for (std::int64_t row = 0; row < rows.size(0); ++row)
      for (std::int64_t c = 0; c < kWidth; ++c)
        if (const std::int32_t pair = r.pairs.data<std::int32_t>()[row]; pair >= 0)
          copies[static_cast<std::size_t>(row * kWidth + c)] =
              in[static_cast<std::size_t>(pair / kChoices * kWidth + c)];
    EXPECT_EQ(values(rows), copies);

    const Tensor y = random.normal(rows.shape(), dtype), out = Tensor::empty(x.shape(), dtype);
    unpermute_tokens({y, r.rows, out});
    const auto of_rows = values(y);
    for (std::int64_t t = 0; t < kTokens; ++t)
      for (std::int64_t j = 0; j < kChoices; ++j)
        for (std::int64_t c = 0; c < kWidth; ++c)
          sums[static_cast<std::size_t>(t * kWidth + c)] +=
              of_rows[static_cast<std::size_t>(r.rows.data<std::int32_t>()[t * kChoices + j] * kWidth + c)];
    EXPECT_TRUE(close(out, sums, rounding(dtype) * 1.01, 1e-6));
  }
}

// Columns of wider rows, and tokens without some of their rows.
TEST(TokenPermutation, RowsMayBeColumnsAndAbsent) {
  constexpr std::int64_t kTokens = 3, kWidth = 4;
  Generator random(7);
  const Tensor wide = random.normal({kTokens, 3 * kWidth}, DType::f32), x = wide.narrow(1, kWidth, kWidth);
  const Tensor pairs = Tensor::from_values<std::int32_t>({5}, std::array{2, 0, -1, 1, 2});
  const Tensor rows = Tensor::empty({5, kWidth}, DType::f32);
  permute_tokens({x, pairs, 1, rows});
  for (std::int64_t c = 0; c < kWidth; ++c) {
    EXPECT_EQ(rows.data<float>()[c], wide.data<float>()[2 * 3 * kWidth + kWidth + c]);
    EXPECT_EQ(rows.data<float>()[2 * kWidth + c], 0.0f);
  }
  const Tensor sums = Tensor::zeros({kTokens, 3 * kWidth}, DType::f32);
  const Tensor readers = Tensor::from_values<std::int32_t>({kTokens, 2}, std::array{1, -1, -1, -1, 0, 4});
  unpermute_tokens({rows, readers, sums.narrow(1, kWidth, kWidth)});
  for (std::int64_t c = 0; c < 3 * kWidth; ++c) {
    const bool inside = c >= kWidth && c < 2 * kWidth;
    EXPECT_EQ(sums.data<float>()[c], inside ? wide.data<float>()[c] : 0.0f);
    EXPECT_EQ(sums.data<float>()[3 * kWidth + c], 0.0f);
    EXPECT_EQ(sums.data<float>()[2 * 3 * kWidth + c], inside ? 2 * wide.data<float>()[2 * 3 * kWidth + c] : 0.0f);
  }
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

// The weight multiplies the result, or what goes in.
TEST(TokenPermutation, SwigluIsWeighted) {
  for (const auto& [dtype, score_before_experts] :
       {std::pair{DType::f32, false}, {DType::bf16, false}, {DType::f32, true}, {DType::bf16, true}}) {
    SCOPED_TRACE(fmt::format("{} {}", to_string(dtype), score_before_experts));
    constexpr std::int64_t kTokens = 9, kChoices = 2, kWidth = 21;
    Generator random(6);
    const Tensor experts = random.integers(kTokens * kChoices, 4).view({kTokens, kChoices});
    const Rows r = rows_of(experts, 4, 16);
    const std::int64_t n = r.pairs.size(0);
    const Tensor gate_up = random.normal({n, 2 * kWidth}, dtype, 2.0), dout = random.normal({n, kWidth}, dtype);
    const Tensor weights = random.normal({kTokens, kChoices}, DType::f32);
    const Tensor out = Tensor::empty({n, kWidth}, dtype), dgate_up = Tensor::empty(gate_up.shape(), dtype);
    const Tensor again = Tensor::empty({n, kWidth}, dtype), dweights = Tensor::empty(weights.shape(), DType::f32);
    expert_swiglu({gate_up, weights, r.pairs, out, score_before_experts});
    expert_swiglu_backward({dout, gate_up, weights, r.pairs, dgate_up, dweights, again, score_before_experts});
    EXPECT_TRUE(same_bits(out, again));
    EXPECT_THROW(expert_swiglu({gate_up, weights, r.pairs, out, score_before_experts, MxScaleMode::rceil}), Error)
        << "no whole blocks";
    const auto x = values(gate_up), w = values(weights), g = values(dout);
    std::vector<double> y(g.size()), dx(x.size()), dw(w.size());
    for (std::int64_t row = 0; row < n; ++row) {
      const std::int32_t pair = r.pairs.data<std::int32_t>()[row];
      if (pair < 0) continue;
      for (std::int64_t i = 0; i < kWidth; ++i) {
        const auto at = static_cast<std::size_t>(row * kWidth + i),
                   gate_at = static_cast<std::size_t>(2 * row * kWidth + i);
        const double weight = w[static_cast<std::size_t>(pair)], in = score_before_experts ? weight : 1,
                     f = weight / in;
        const double gate = in * x[gate_at], up = in * x[gate_at + kWidth], s = sigmoid(gate);
        y[at] = f * gate * s * up;
        dx[gate_at] = in * f * g[at] * up * s * (1 + gate * (1 - s));
        dx[gate_at + kWidth] = in * f * g[at] * gate * s;
        dw[static_cast<std::size_t>(pair)] +=
            score_before_experts ? (dx[gate_at] * x[gate_at] + dx[gate_at + kWidth] * x[gate_at + kWidth]) / weight
                                 : g[at] * gate * s * up;
      }
    }
    EXPECT_TRUE(close(out, y, rounding(dtype) * 1.01 + 1e-6, 1e-6));
    EXPECT_TRUE(close(dgate_up, dx, rounding(dtype) * 1.01 + 1e-6, 1e-6));
    EXPECT_TRUE(close(dweights, dw, 1e-5, 1e-5));
    const Tensor in_place = gate_up.clone();
    expert_swiglu_backward({dout, in_place, weights, r.pairs, in_place, dweights, {}, score_before_experts});
    EXPECT_TRUE(same_bits(in_place, dgate_up));
  }
}

TEST(TokenPermutation, SwigluIsRoundedToMxWhereAsked) {
  constexpr std::int64_t kTokens = 9, kChoices = 2, kWidth = 96;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const MxScaleMode mode : {MxScaleMode::rceil, MxScaleMode::floor}) {
      SCOPED_TRACE(fmt::format("{} {}", to_string(dtype), to_string(mode)));
      Generator random(6);
      const Rows r = rows_of(random.integers(kTokens * kChoices, 4).view({kTokens, kChoices}), 4, 16);
      const Tensor gate_up = random.normal({r.pairs.size(0), 2 * kWidth}, dtype, 2.0);
      const Tensor weights = random.normal({kTokens, kChoices}, DType::f32);
      const Tensor out = Tensor::empty({r.pairs.size(0), kWidth}, dtype), rounded = Tensor::empty_like(out);
      expert_swiglu({gate_up, weights, r.pairs, out});
      expert_swiglu({gate_up, weights, r.pairs, rounded, false, mode});
      EXPECT_FALSE(same_bits(out, rounded));
      round_mx({.x = out, .out = out, .mode = mode});
      EXPECT_TRUE(same_bits(out, rounded));
    }
}

TEST(TokenPermutation, RefuseWhatDoesNotFit) {
  const Tensor experts = Tensor::zeros({4, 1}, DType::i32);
  experts.data<std::int32_t>()[2] = 3;
  EXPECT_THROW((void)rows_of(experts, 3, 1), Error) << "there is no expert 3";
  const Tensor x = Tensor::zeros({2, 4}, DType::f32);
  EXPECT_THROW(permute_tokens({x, Tensor::zeros({3}, DType::i32), 1, Tensor::zeros({2, 4}, DType::f32)}), Error);
  EXPECT_THROW(unpermute_tokens({x, Tensor::zeros({3, 1}, DType::i32), Tensor::zeros({3, 5}, DType::f32)}), Error);
}

}  // namespace
}  // namespace quench
