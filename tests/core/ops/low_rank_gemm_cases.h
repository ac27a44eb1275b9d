#pragma once
// Products with a low-rank update and what they are in f64.

#include <vector>

#include "core/ops/adapters/low_rank_gemm.h"
#include "tests/core/ops/op_testing.h"

namespace quench::testing {

// Columns of C and of U.
struct BlockSpan {
  std::int64_t column, width, rank_begin, rank;
};

struct LowRankCase {
  LowRankGemmArgs on_cpu;
  std::vector<double> expected, magnitude;

  LowRankCase(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t all_ranks,
              const std::vector<BlockSpan>& spans, bool transpose_b) {
    Generator random(static_cast<std::uint32_t>(m + 3 * n + 7 * k + all_ranks));
    const auto right = [&](std::int64_t depth, std::int64_t width) {
      return random.normal(transpose_b ? Shape{width, depth} : Shape{depth, width}, dtype);
    };
    on_cpu = {.a = random.normal({m, k}, dtype),
              .b = right(k, n),
              .u = random.normal({m, all_ranks}, dtype),
              .c = Tensor::empty({m, n}, dtype),
              .blocks = {},
              .transpose_b = transpose_b};
    for (const BlockSpan& span : spans)
      on_cpu.blocks.push_back({right(span.rank, span.width), span.column, span.rank_begin});
    fill(on_cpu.c, std::nan(""));  // must not be read
    expected.resize(static_cast<std::size_t>(m * n));
    magnitude.resize(expected.size());
    const auto by_depth = [&](const Tensor& t) { return values(transpose_b ? t.transpose(0, 1) : t); };
    add_product(values(on_cpu.a), k, 0, by_depth(on_cpu.b), k, n, 0);
    for (std::size_t i = 0; i < spans.size(); ++i)
      add_product(values(on_cpu.u), all_ranks, spans[i].rank_begin, by_depth(on_cpu.blocks[i].v), spans[i].rank,
                  spans[i].width, spans[i].column);
  }

  // `roundings` to the dtype of what is at most as large as the terms, and what f32 sums lose.
  void check(const Tensor& c, double roundings) const {
    const std::vector<double> got = values(c);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], expected[i],
                  rounding(c.dtype()) * (1.01 * std::abs(expected[i]) + (roundings - 1) * magnitude[i]) +
                      0x1p-19 * magnitude[i])
          << i;
  }

 private:
  void add_product(const std::vector<double>& left, std::int64_t stride, std::int64_t first,
                   const std::vector<double>& right, std::int64_t depth, std::int64_t width, std::int64_t column) {
    const std::int64_t m = on_cpu.c.size(0), n = on_cpu.c.size(1);
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t p = 0; p < depth; ++p) {
        const double factor = left[static_cast<std::size_t>(i * stride + first + p)];
        for (std::int64_t j = 0; j < width; ++j) {
          const double term = factor * right[static_cast<std::size_t>(p * width + j)];
          const auto at = static_cast<std::size_t>(i * n + column + j);
          expected[at] += term;
          magnitude[at] += std::abs(term);
        }
      }
  }
};

}  // namespace quench::testing
