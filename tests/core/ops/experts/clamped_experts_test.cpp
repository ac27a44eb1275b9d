// Experts of gpt-oss: the clamped unit and biases, against f64.

#include "core/ops/experts/group_bias.h"
#include "core/ops/experts/token_permutation.h"
#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

struct SortedRows {
  Tensor counts, ends, rows, pairs;
  SortedRows(const Tensor& experts, std::int64_t count, std::int64_t alignment)
      : counts(Tensor::empty({count}, DType::f32)),
        ends(Tensor::empty({count}, DType::i32)),
        rows(Tensor::empty(experts.shape(), DType::i32)),
        pairs(Tensor::empty({permuted_row_capacity(experts.numel(), count, alignment)}, DType::i32)) {
    token_permutation({experts, alignment, counts, ends, rows, pairs});
  }
  [[nodiscard]] std::int64_t expert_of(std::int64_t row) const {
    std::int64_t expert = 0;
    while (ends.data<std::int32_t>()[expert] <= row) ++expert;
    return expert;
  }
};

TEST(ClampedExperts, UnitAndItsGradients) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const ClampedUnit unit : {ClampedUnit{}, ClampedUnit{.slope = 0.5f, .limit = 1.0f}}) {
      SCOPED_TRACE(fmt::format("{} {}", to_string(dtype), unit.limit));
      constexpr std::int64_t kTokens = 9, kChoices = 2, kWidth = 21;
      Generator random(16);
      const SortedRows r(random.integers(kTokens * kChoices, 4).view({kTokens, kChoices}), 4, 16);
      const std::int64_t n = r.pairs.size(0);
      const Tensor gate_up = random.normal({n, 2 * kWidth}, dtype, 4.0), dout = random.normal({n, kWidth}, dtype);
      const Tensor weights = random.normal({kTokens, kChoices}, DType::f32);
      const Tensor out = Tensor::empty({n, kWidth}, dtype), dgate_up = Tensor::empty(gate_up.shape(), dtype);
      const Tensor again = Tensor::empty({n, kWidth}, dtype), dweights = Tensor::empty(weights.shape(), DType::f32);
      expert_swiglu({.gate_up = gate_up, .weights = weights, .pairs = r.pairs, .out = out, .clamped = unit});
      expert_swiglu_backward({.dout = dout,
                              .gate_up = gate_up,
                              .weights = weights,
                              .pairs = r.pairs,
                              .dgate_up = dgate_up,
                              .dweights = dweights,
                              .out = again,
                              .clamped = unit});
      EXPECT_TRUE(same_bits(out, again));
      const auto x = values(gate_up), w = values(weights), g = values(dout);
      std::vector<double> y(g.size()), dx(x.size()), dw(w.size());
      const double limit = unit.limit, slope = unit.slope;
      for (std::int64_t row = 0; row < n; ++row) {
        const std::int32_t pair = r.pairs.data<std::int32_t>()[row];
        if (pair < 0) continue;
        const double weight = w[static_cast<std::size_t>(pair)];
        for (std::int64_t i = 0; i < kWidth; ++i) {
          const auto at = static_cast<std::size_t>(row * kWidth + i),
                     gate_at = static_cast<std::size_t>(2 * row * kWidth + i), up_at = gate_at + kWidth;
          const double gate = std::min(x[gate_at], limit), up = std::clamp(x[up_at], -limit, limit) + 1;
          const double s = 1 / (1 + std::exp(-slope * gate));
          y[at] = weight * gate * s * up;
          dx[gate_at] = x[gate_at] > limit ? 0 : weight * g[at] * up * s * (1 + slope * gate * (1 - s));
          dx[up_at] = std::abs(x[up_at]) > limit ? 0 : weight * g[at] * gate * s;
          dw[static_cast<std::size_t>(pair)] += g[at] * gate * s * up;
        }
      }
      EXPECT_TRUE(close(out, y, rounding(dtype) * 1.01 + 1e-6, 1e-6));
      EXPECT_TRUE(close(dgate_up, dx, rounding(dtype) * 1.01 + 1e-6, 1e-5));
      EXPECT_TRUE(close(dweights, dw, 1e-5, 1e-4));
      EXPECT_THROW(expert_swiglu({.gate_up = gate_up,
                                  .weights = weights,
                                  .pairs = r.pairs,
                                  .out = out,
                                  .score_before_experts = true,
                                  .clamped = unit}),
                   Error);
    }
}

TEST(ClampedExperts, BiasesOfSortedRows) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool weighted : {false, true})
      for (const std::int64_t alignment : {1, 16}) {
        SCOPED_TRACE(fmt::format("{} {} {}", to_string(dtype), weighted, alignment));
        constexpr std::int64_t kTokens = 30, kChoices = 2, kWidth = 37, kExperts = 5;
        Generator random(17);
        // No token goes to expert 4.
        const SortedRows r(random.integers(kTokens * kChoices, 4).view({kTokens, kChoices}), kExperts, alignment);
        const std::int64_t n = r.pairs.size(0);
        const Tensor y = random.normal({n, kWidth}, dtype), dy = random.normal({n, kWidth}, dtype);
        const Tensor bias = random.normal({kExperts, kWidth}, dtype);
        const Tensor weights = weighted ? random.normal({kTokens, kChoices}, DType::f32) : Tensor();
        const Tensor dbias = random.normal({kExperts, kWidth}, DType::f32);
        const Tensor dweights = weighted ? Tensor::empty(weights.shape(), DType::f32) : Tensor();
        std::vector<double> sums = values(y), gradient = values(dbias), dw(kTokens * kChoices);
        const auto b = values(bias), d = values(dy);
        for (std::int64_t row = 0; row < n; ++row) {
          const std::int32_t pair = r.pairs.data<std::int32_t>()[row];
          if (pair < 0) continue;
          const double weight = weighted ? static_cast<double>(weights.data<float>()[pair]) : 1;
          for (std::int64_t i = 0; i < kWidth; ++i) {
            const auto at = static_cast<std::size_t>(row * kWidth + i),
                       of = static_cast<std::size_t>(r.expert_of(row) * kWidth + i);
            sums[at] += weight * b[of];
            gradient[of] += weight * d[at];
            dw[static_cast<std::size_t>(pair)] += d[at] * b[of];
          }
        }
        add_group_bias({.y = y, .bias = bias, .ends = r.ends, .pairs = r.pairs, .weights = weights});
        EXPECT_TRUE(close(y, sums, rounding(dtype) * 1.01 + 1e-6, 1e-6));
        group_bias_backward({.dy = dy,
                             .bias = bias,
                             .ends = r.ends,
                             .pairs = r.pairs,
                             .weights = weights,
                             .dbias = dbias,
                             .accumulate = true,
                             .dweights = dweights});
        EXPECT_TRUE(close(dbias, gradient, 1e-5, 1e-5));
        if (weighted) {
          EXPECT_TRUE(close(dweights, dw, 1e-5, 1e-5));
        }
        EXPECT_THROW(add_group_bias({.y = y, .bias = bias.narrow(0, 0, 2), .ends = r.ends, .pairs = r.pairs}), Error);
      }
}

}  // namespace
}  // namespace quench
