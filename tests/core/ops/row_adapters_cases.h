#pragma once
// Operands of core/ops/adapters/row_adapters.h, and what plain loops make of them.

#include "core/ops/adapters/row_adapters.h"
#include "tests/core/ops/op_testing.h"

namespace quench::testing {

struct RowAdaptersCase {
  std::int64_t m, k, n, rank, adapters;
  DType dtype;
  bool gaps;  // between rows of x and y
};

inline constexpr RowAdaptersCase kRowAdaptersCases[] = {
    {1, 64, 96, 16, 3, DType::f32, false},    {7, 77, 41, 5, 2, DType::f32, false},
    {33, 576, 960, 16, 4, DType::f32, true},  {130, 128, 1030, 9, 3, DType::f32, false},
    {1, 64, 96, 16, 3, DType::bf16, false},   {7, 77, 41, 5, 2, DType::bf16, true},
    {33, 576, 960, 64, 4, DType::bf16, true}, {130, 2048, 1024, 32, 8, DType::bf16, false},
    {5, 1, 1, 1, 1, DType::f32, false}};

inline Tensor random_rows(Generator& random, std::int64_t rows, std::int64_t columns, DType dtype, bool gaps) {
  const Tensor all = Tensor::empty({rows, columns + (gaps ? 3 : 0)}, dtype);
  random.fill_normal(all);
  return gaps ? all.narrow(1, 2, columns) : all;
}

// Every third row has no adapter; others follow in runs of two. Of more than 40 columns, the middle third has no part;
// the last part has the last ranks alone.
inline RowAdaptersArgs row_adapters_args(const RowAdaptersCase& c, std::uint32_t seed) {
  Generator random(seed);
  const Tensor a = Tensor::empty({c.adapters, c.rank, c.k}, c.dtype), rows = Tensor::empty({c.m}, DType::i32);
  random.fill_normal(a);
  const bool several = c.n > 40;
  const std::int64_t first = several ? c.n / 3 / 8 * 8 : c.n, last_rank = (c.rank + 1) / 2;
  std::vector<RowAdapterPart> parts{{Tensor::empty({c.adapters, c.rank, first}, c.dtype), 0, 0}};
  if (several)
    parts.push_back({Tensor::empty({c.adapters, last_rank, c.n - 2 * first}, c.dtype), 2 * first, c.rank - last_rank});
  for (const RowAdapterPart& part : parts) random.fill_normal(part.b);
  for (std::int64_t i = 0; i < c.m; ++i)
    rows.data<std::int32_t>()[i] = static_cast<std::int32_t>(i % 3 == 1 ? -1 : i / 2 % c.adapters);
  return {.x = random_rows(random, c.m, c.k, c.dtype, c.gaps),
          .a = a,
          .parts = parts,
          .rows = rows,
          .y = random_rows(random, c.m, c.n, c.dtype, c.gaps)};
}

// y after the op, in double.
inline std::vector<double> row_adapters_result(const RowAdaptersArgs& args) {
  const std::int64_t m = args.x.size(0), k = args.x.size(1), n = args.y.size(1), r = args.a.size(1);
  const std::vector<double> x = values(args.x), a = values(args.a);
  std::vector<double> y = values(args.y);
  const auto at = [](const std::vector<double>& all, std::int64_t i) { return all[static_cast<std::size_t>(i)]; };
  for (std::int64_t row = 0; row < m; ++row) {
    const std::int64_t adapter = args.rows.data<std::int32_t>()[row];
    if (adapter < 0) continue;
    for (const RowAdapterPart& part : args.parts)
      for (std::int64_t rank = 0; rank < part.b.size(1); ++rank) {
        double hidden = 0;
        const std::int64_t line = adapter * r + part.rank_begin + rank;
        for (std::int64_t i = 0; i < k; ++i) hidden += at(a, line * k + i) * at(x, row * k + i);
        for (std::int64_t i = 0; i < part.b.size(2); ++i)
          y[static_cast<std::size_t>(row * n + part.column + i)] +=
              get_element(part.b, ((adapter * part.b.size(1)) + rank) * part.b.size(2) + i) * hidden;
      }
  }
  return y;
}

// Error of f32 sums, and of one rounding.
inline double row_adapters_tolerance(const RowAdaptersCase& c, double expected) {
  const double sums = 2e-6 * std::sqrt(static_cast<double>(c.k * c.rank));
  return sums + (c.dtype == DType::f32 ? 0 : 4e-3 * std::abs(expected));
}

}  // namespace quench::testing
