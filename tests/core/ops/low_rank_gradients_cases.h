#pragma once
// Gradients of low-rank updates and what they are in f64.

#include <vector>

#include "core/ops/low_rank_gradients.h"
#include "tests/core/ops/op_testing.h"

namespace quench::testing {

// dy and h are columns of wider matrices where there is a gap.
struct LowRankCase {
  Tensor dy, h, b, db;
  bool accumulate;
  std::vector<double> dh_expected, dh_magnitude, db_expected, db_magnitude;

  LowRankCase(DType dtype, DType db_dtype, std::int64_t n, std::int64_t m, std::int64_t rank, std::int64_t gap,
              bool adds)
      : accumulate(adds) {
    Generator random(static_cast<std::uint32_t>(n * 5 + m * 3 + rank));
    dy = random.normal({n, m + gap}, dtype).narrow(1, gap, m);
    h = random.normal({n, rank + gap}, dtype).narrow(1, 0, rank);
    b = random.normal({m, rank}, dtype);
    db = random.normal({m, rank}, db_dtype);
    const auto vy = values(dy), vh = values(h), vb = values(b), old = values(db);
    const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
    dh_expected.resize(at(n * rank));
    dh_magnitude.resize(at(n * rank));
    db_expected = adds ? old : std::vector<double>(at(m * rank));
    db_magnitude.resize(at(m * rank));
    for (std::size_t i = 0; i < db_expected.size(); ++i) db_magnitude[i] = std::abs(db_expected[i]);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < m; ++j)
        for (std::int64_t r = 0; r < rank; ++r) {
          const double g = 0.5 * vy[at(i * m + j)], of_dh = g * vb[at(j * rank + r)], of_db = g * vh[at(i * rank + r)];
          dh_expected[at(i * rank + r)] += of_dh;
          dh_magnitude[at(i * rank + r)] += std::abs(of_dh);
          db_expected[at(j * rank + r)] += of_db;
          db_magnitude[at(j * rank + r)] += std::abs(of_db);
        }
    if (!adds) fill(db, std::nan(""));  // must not be read
  }

  // `moved`: how a tensor gets to the device. dh is columns of a wider matrix.
  template <class Move>
  [[nodiscard]] LowRankGradientsArgs args(const Move& moved) const {
    Tensor dh = Tensor::empty({h.size(0), h.size(1) + 8}, h.dtype());
    fill(dh, std::nan(""));
    return {.dy = moved(dy),
            .h = moved(h),
            .b = moved(b),
            .dh = moved(dh).narrow(1, 0, h.size(1)),
            .db = moved(db.clone()),
            .scale = 0.5f,
            .accumulate = accumulate};
  }

  void check(const Tensor& dh, const Tensor& got_db) const {
    const auto near = [](const Tensor& got, const std::vector<double>& expected, const std::vector<double>& magnitude,
                         double roundings) {
      const std::vector<double> actual = values(got);
      ASSERT_EQ(actual.size(), expected.size());
      for (std::size_t i = 0; i < actual.size(); ++i)
        ASSERT_NEAR(actual[i], expected[i],
                    roundings * rounding(got.dtype()) * std::abs(expected[i]) + 0x1p-18 * magnitude[i])
            << i;
    };
    near(dh, dh_expected, dh_magnitude, 1.01);
    near(got_db, db_expected, db_magnitude, 1.01);
  }
};

}  // namespace quench::testing
