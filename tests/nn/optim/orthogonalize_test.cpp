#include "nn/optim/orthogonalize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "core/number/random.h"
#include "core/ops/gemm.h"

namespace quench::nn {
namespace {

double draw(std::uint64_t stream, std::int64_t i) {
  const PhiloxBlock block = random_block({1, stream, 0}, static_cast<std::uint64_t>(i));
  return static_cast<double>(block.words[0]) / 4294967296.0 - 0.5;
}

using Element = std::function<double(std::int64_t row, std::int64_t column)>;

Tensor matrix(std::int64_t rows, std::int64_t columns, const Element& element) {
  Tensor x = Tensor::empty({rows, columns}, DType::bf16);
  for (std::int64_t i = 0; i < x.numel(); ++i)
    x.data<bfloat16>()[i] = bfloat16(static_cast<float>(element(i / columns, i % columns)));
  return x;
}

Element random_element(std::int64_t columns) {
  return [columns](std::int64_t row, std::int64_t column) { return draw(77, row * columns + column); };
}

using RowMajor = std::vector<double>;

// [n, m] with n <= m: the transpose of a tall one.
RowMajor wide(const Tensor& x) {
  const std::int64_t rows = x.size(0), columns = x.size(1);
  RowMajor result(static_cast<std::size_t>(x.numel()));
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const auto value = static_cast<double>(static_cast<float>(x.data<bfloat16>()[i]));
    result[static_cast<std::size_t>(rows <= columns ? i : i % columns * rows + i / columns)] = value;
  }
  return result;
}

// a [n,k] b [k,m], in f32.
RowMajor product(const RowMajor& a, const RowMajor& b, std::size_t n, std::size_t k, std::size_t m) {
  const auto tensor = [](const RowMajor& values, std::size_t rows, std::size_t columns) {
    Tensor x = Tensor::empty({static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)}, DType::f32);
    for (std::size_t i = 0; i < values.size(); ++i) x.data<float>()[i] = static_cast<float>(values[i]);
    return x;
  };
  const Tensor c = tensor({}, n, m);
  gemm({.a = tensor(a, n, k), .b = tensor(b, k, m), .c = c});
  return {c.data<float>(), c.data<float>() + c.numel()};
}

double norm(const RowMajor& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

// The five iterations in f32, from x over its norm.
RowMajor expected(const Tensor& x) {
  const auto n = static_cast<std::size_t>(std::min(x.size(0), x.size(1))),
             m = static_cast<std::size_t>(std::max(x.size(0), x.size(1)));
  RowMajor now = wide(x);
  const double length = norm(now);
  for (double& v : now) v /= length;
  for (int iteration = 0; iteration < 5; ++iteration) {
    RowMajor transposed(n * m);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < m; ++j) transposed[j * n + i] = now[i * m + j];
    const RowMajor gram = product(now, transposed, n, m, n);
    RowMajor polynomial = product(gram, gram, n, n, n);
    for (std::size_t i = 0; i < n * n; ++i)
      polynomial[i] = 2.0315 * polynomial[i] - 4.7750 * gram[i] + (i / n == i % n ? 3.4445 : 0.0);
    now = product(polynomial, now, n, n, m);
  }
  return now;
}

double distance(const Tensor& x, const RowMajor& from) {
  RowMajor difference = wide(x);
  for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= from[i];
  return norm(difference) / norm(from);
}

// Sides of 1:1, 4:3, 2:1 and 4:1, both ways around.
constexpr std::pair<int, int> kShapes[] = {{64, 64}, {80, 60}, {60, 80}, {96, 48}, {48, 192}};
// Shapes that run on Gram matrices, with some of 256 rows next to them that do not.
constexpr std::pair<int, int> kLargeShapes[] = {{256, 300}, {256, 512}, {400, 264}};

void follows_f32(std::int64_t rows, std::int64_t columns) {
  const auto check = [&](const char* what, double most, const Element& element) {
    const Tensor x = matrix(rows, columns, element);
    const RowMajor wanted = expected(x);
    orthogonalize(x);
    EXPECT_LT(distance(x, wanted), most) << what << ", " << rows << " x " << columns;
  };
  const Element random = random_element(columns);
  check("random", 0.02, random);
  // As gradients may be: what is small is lost in the rounding of what is large.
  check("one large singular value", 0.25,
        [&](std::int64_t i, std::int64_t j) { return draw(1, i) * draw(2, j) * 4 + 2e-3 * random(i, j); });
  check("four large singular values", 0.2, [&](std::int64_t i, std::int64_t j) {
    double sum = 0.003 * random(i, j);
    for (std::uint64_t k = 0; k < 4; ++k) sum += draw(10 + k, i) * draw(20 + k, j);
    return sum;
  });
  check("rows that fall off", 0.04,
        [&](std::int64_t i, std::int64_t j) { return random(i, j) / static_cast<double>(1 + i); });
  check("columns that fall off", 0.04,
        [&](std::int64_t i, std::int64_t j) { return random(i, j) / static_cast<double>(1 + j); });
}

TEST(Orthogonalize, FollowsTheIterationsInF32) {
  for (const auto& [rows, columns] : kShapes) follows_f32(rows, columns);
}

TEST(Orthogonalize, LargeMatricesFollowTheIterationsInF32) {
  for (const auto& [rows, columns] : kLargeShapes) follows_f32(rows, columns);
}

// The Gram matrix of the result, over the smaller side, is near the identity: singular values from 0.7 to 1.2.
TEST(Orthogonalize, BringsSingularValuesNearOne) {
  for (const auto& [rows, columns] : {std::pair{48, 96}, std::pair{96, 48}, std::pair{64, 64}, std::pair{1, 32}}) {
    const Tensor x = matrix(rows, columns, random_element(columns));
    const Tensor before = x.clone();
    orthogonalize(x);
    // Along random directions v of the smaller side, |v x| / |v| lies within the singular values.
    const std::int64_t n = std::min(rows, columns);
    for (std::uint64_t trial = 0; trial < 8; ++trial) {
      double norm = 0, image = 0;
      std::vector<double> sums(static_cast<std::size_t>(std::max(rows, columns)));
      for (std::int64_t i = 0; i < n; ++i) {
        const double v = draw(100 + trial, i);
        norm += v * v;
        for (std::size_t j = 0; j < sums.size(); ++j) {
          const auto other = static_cast<std::int64_t>(j);
          const std::int64_t at = rows <= columns ? i * columns + other : other * columns + i;
          sums[j] += v * static_cast<double>(static_cast<float>(x.data<bfloat16>()[at]));
        }
      }
      for (const double sum : sums) image += sum * sum;
      EXPECT_GT(std::sqrt(image / norm), 0.65) << rows << " x " << columns;
      EXPECT_LT(std::sqrt(image / norm), 1.25) << rows << " x " << columns;
    }
    double along = 0;
    for (std::int64_t i = 0; i < x.numel(); ++i)
      along += static_cast<double>(static_cast<float>(x.data<bfloat16>()[i])) *
               static_cast<double>(static_cast<float>(before.data<bfloat16>()[i]));
    EXPECT_GT(along, 0) << "the same sense";
  }
}

TEST(Orthogonalize, BatchedMatricesAreIndependent) {
  for (const auto& [rows, columns] : {std::pair{80, 60}, {48, 96}, {256, 400}}) {
    const std::int64_t size = std::int64_t{rows} * columns;
    const Tensor batch = Tensor::empty({3, rows, columns}, DType::bf16);
    for (std::int64_t i = 0; i < batch.numel(); ++i)
      batch.data<bfloat16>()[i] = bfloat16(static_cast<float>(draw(3, i) * static_cast<double>(1 + i / size)));
    const Tensor before = batch.clone();
    orthogonalize(batch);
    for (std::int64_t i = 0; i < 3; ++i) {
      const Tensor alone = before.select(0, i).clone();
      orthogonalize(alone);
      EXPECT_EQ(std::memcmp(alone.raw_data(), batch.select(0, i).raw_data(), alone.nbytes()), 0);
    }
  }
}

}  // namespace
}  // namespace quench::nn
