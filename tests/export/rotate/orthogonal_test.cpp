#include "export/rotate/orthogonal.h"

#include <gtest/gtest.h>

#include <cmath>

namespace quench {
namespace {

TEST(PaleyMatrix, RowsAreOrthogonalSigns) {
  for (const std::int64_t order : {1, 4, 8, 12, 20, 24, 28, 36, 44, 60, 180}) {
    const std::vector<std::int8_t> matrix = paley_matrix(order);
    ASSERT_EQ(static_cast<std::int64_t>(matrix.size()), order * order) << order;
    for (std::int64_t a = 0; a < order; ++a)
      for (std::int64_t b = 0; b < order; ++b) {
        std::int64_t product = 0;
        for (std::int64_t i = 0; i < order; ++i)
          product += matrix[static_cast<std::size_t>(a * order + i)] * matrix[static_cast<std::size_t>(b * order + i)];
        ASSERT_EQ(product, a == b ? order : 0) << order;
      }
    for (const std::int8_t sign : matrix) ASSERT_EQ(std::abs(sign), 1);
  }
  for (const std::int64_t order : {2, 3, 6, 10, 16, 18, 92}) EXPECT_TRUE(paley_matrix(order).empty()) << order;
}

TEST(OrthogonalMatrix, WidthsOfModelsHaveHadamardMatrices) {
  for (const std::int64_t size : {64,   128,  192,  576,  640,  768,  896,  960,  1024, 1152, 1536, 1600,
                                  2048, 2304, 2560, 2880, 3072, 3584, 4096, 5120, 6144, 7168, 8192})
    EXPECT_TRUE(OrthogonalMatrix(size, {1, 2, 3}).is_hadamard()) << size;
  for (const std::int64_t size : {3, 17, 63}) EXPECT_FALSE(OrthogonalMatrix(size, {1, 2, 3}).is_hadamard()) << size;
}

TEST(OrthogonalMatrix, ProductsKeepLengthsAndAngles) {
  for (const std::int64_t size : {1, 2, 3, 16, 17, 63, 80, 576}) {
    SCOPED_TRACE(size);
    const OrthogonalMatrix matrix(size, {1, 2, 3});
    const auto n = static_cast<std::size_t>(size);
    std::vector<std::vector<double>> rows;  // Q, by unit vectors
    std::vector<double> scratch;
    for (std::size_t i = 0; i < n; ++i) {
      rows.emplace_back(n, 0.0)[i] = 1.0;
      matrix.apply(rows.back().data(), scratch);
    }
    for (std::size_t a = 0; a < n; ++a)
      for (std::size_t b = 0; b <= a; ++b) {
        double product = 0;
        for (std::size_t i = 0; i < n; ++i) product += rows[a][i] * rows[b][i];
        ASSERT_NEAR(product, a == b ? 1.0 : 0.0, 1e-12);
      }
  }
}

TEST(OrthogonalMatrix, SpreadsOneChannelOverAll) {
  const OrthogonalMatrix matrix(576, {1, 2, 3});
  std::vector<double> row(576, 0.0), scratch;
  row[7] = 24.0;
  matrix.apply(row.data(), scratch);
  for (const double x : row) EXPECT_NEAR(std::abs(x), 1.0, 1e-12);
}

TEST(OrthogonalMatrix, KeysDrawDifferentMatrices) {
  const auto image = [](const RandomKey& key) {
    std::vector<double> row(64, 0.0), scratch;
    row[0] = row[1] = row[2] = 1.0;
    OrthogonalMatrix(64, key).apply(row.data(), scratch);
    return row;
  };
  EXPECT_EQ(image({1, 2, 3}), image({1, 2, 3}));
  EXPECT_NE(image({1, 2, 3}), image({1, 2, 4}));
}

}  // namespace
}  // namespace quench
