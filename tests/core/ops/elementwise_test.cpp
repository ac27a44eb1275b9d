#include "core/ops/elementwise.h"

#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

const std::int64_t kSizes[] = {0, 1, 15, 16, 17, 1000, 40000};

TEST(Cast, EveryPairOfDtypesRoundsOnce) {
  const DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
  std::uint32_t seed = 1;
  for (const DType from : dtypes)
    for (const DType to : dtypes)
      for (const std::int64_t n : kSizes) {
        Generator random(++seed);
        const Tensor x = random.normal({n}, from, 10.0), y = Tensor::empty({n}, to);
        cast({x, y});
        const Tensor expected = Tensor::empty({n}, to);
        for (std::int64_t i = 0; i < n; ++i) set_element(expected, i, get_element(x, i));
        EXPECT_TRUE(same_bits(y, expected)) << to_string(from) << " to " << to_string(to) << " n " << n;
      }
}

TEST(Cast, TiesOverflowAndNaN) {
  const float cases[] = {1.00390625f, 1.01171875f, 3.4e38f, -3.4e38f, INFINITY, -INFINITY,
                         NAN,         1e-45f,      -0.0f,   65520.0f, 65519.0f, 5.9e-8f};
  const auto n = static_cast<std::int64_t>(std::size(cases));
  const Tensor x = Tensor::from_values<float>({n}, cases);
  for (const DType to : {DType::bf16, DType::f16}) {
    const Tensor y = Tensor::empty({n}, to), expected = Tensor::empty({n}, to);
    cast({x, y});
    for (std::int64_t i = 0; i < n; ++i) set_element(expected, i, static_cast<double>(cases[i]));
    for (std::int64_t i = 0; i < n; ++i) {
      const double a = get_element(y, i), e = get_element(expected, i);
      EXPECT_TRUE(a == e || (std::isnan(a) && std::isnan(e))) << cases[i] << " gives " << a;
    }
  }
}

TEST(Elementwise, AddAccumulateAndScale) {
  std::uint32_t seed = 50;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t n : kSizes) {
      SCOPED_TRACE(fmt::format("{} n {}", to_string(dtype), n));
      Generator random(++seed);
      const Tensor a = random.normal({n}, dtype), b = random.normal({n}, dtype), out = Tensor::empty({n}, dtype);
      const auto va = values(a), vb = values(b);
      std::vector<double> sum(va), weighted(va), scaled(va);
      for (std::size_t i = 0; i < va.size(); ++i) {
        sum[i] = va[i] + vb[i];
        weighted[i] = va[i] + 0.3f * vb[i];
        scaled[i] = -1.5 * va[i];
      }
      add({a, b, out});
      EXPECT_TRUE(close(out, sum, rounding(dtype), 1e-40));
      const Tensor in_place = a.clone();
      add({in_place, b, in_place});
      EXPECT_TRUE(same_bits(in_place, out));
      for (const DType other : {DType::f32, DType::bf16}) {
        const Tensor x = Tensor::empty({n}, other), total = a.clone();
        for (std::int64_t i = 0; i < n; ++i) set_element(x, i, vb[static_cast<std::size_t>(i)]);
        std::vector<double> expected(va);
        const auto vx = values(x);
        for (std::size_t i = 0; i < va.size(); ++i) expected[i] += 0.3f * vx[i];
        accumulate({x, total, 0.3f});
        EXPECT_TRUE(close(total, expected, rounding(dtype) * 1.01, 1e-7));
      }
      const Tensor product = a.clone();
      scale({product, -1.5f});
      EXPECT_TRUE(close(product, scaled, rounding(dtype), 1e-40));
    }
}

TEST(CopyRows, HonoursBothStrides) {
  Generator random(2);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor from = random.normal_view({9, 13}, dtype, 4), to = Generator::empty_view({9, 13}, dtype, 2);
    copy_rows({from, to});
    EXPECT_EQ(values(from), values(to));
  }
  const Tensor ids = random.integers(12, 100).view({3, 4}), copy = Tensor::empty({3, 4}, DType::i32);
  copy_rows({ids, copy});
  EXPECT_TRUE(same_bits(ids, copy));
  const std::vector<std::uint8_t> numbers{1, 2, 3, 4, 5, 6};
  const Tensor bytes = Tensor::from_values<std::uint8_t>({2, 3}, numbers), part = Tensor::zeros({2, 2}, DType::u8);
  copy_rows({bytes.narrow(1, 1, 2), part});
  EXPECT_EQ(part.data<std::uint8_t>()[0], 2);
  EXPECT_EQ(part.data<std::uint8_t>()[3], 6);
  copy_rows({Tensor::zeros({0, 4}, DType::f32), Tensor::zeros({0, 4}, DType::f32)});
  EXPECT_THROW(copy_rows({ids, Tensor::zeros({4, 3}, DType::i32)}), Error);
  EXPECT_THROW(copy_rows({Tensor::zeros({2, 2}, DType::f64), Tensor::zeros({2, 2}, DType::f64)}), Error);
}

TEST(CopyRows, PutsRowsWhereTheyAreWanted) {
  Generator random(3);
  const Tensor from = random.normal_view({4, 5}, DType::bf16, 3), to = Tensor::zeros({6, 5}, DType::bf16);
  const Tensor rows = Tensor::from_values<std::int32_t>({4}, std::vector<std::int32_t>{5, -1, 0, 6});
  copy_rows({from, to, rows});
  for (std::int64_t column = 0; column < 5; ++column) {
    EXPECT_EQ(values(to)[static_cast<std::size_t>(25 + column)], values(from)[static_cast<std::size_t>(column)]);
    EXPECT_EQ(values(to)[static_cast<std::size_t>(column)], values(from)[static_cast<std::size_t>(10 + column)]);
    for (const std::int64_t untouched : {1, 2, 3, 4})
      EXPECT_EQ(values(to)[static_cast<std::size_t>(untouched * 5 + column)], 0.0);
  }
  EXPECT_THROW(copy_rows({from, to, rows.narrow(0, 0, 3)}), Error);
  EXPECT_THROW(copy_rows({from, Tensor::zeros({6, 4}, DType::bf16), rows}), Error);
}

TEST(ColumnSum, SumsRowsInAFixedOrder) {
  std::uint32_t seed = 90;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool wide : {false, true})
      for (const bool accumulate : {false, true})
        for (const Shape& shape : {Shape{1, 1}, Shape{31, 17}, Shape{33, 64}, Shape{1500, 40}, Shape{0, 5}}) {
          SCOPED_TRACE(
              fmt::format("{} wide {} accumulate {} {}", to_string(dtype), wide, accumulate, shape.to_string()));
          Generator random(++seed);
          const Tensor x = random.normal_view(shape, dtype, 3),
                       out = random.normal({shape[1]}, wide ? DType::f32 : dtype);
          std::vector<double> expected = values(out);
          if (!accumulate) std::fill(expected.begin(), expected.end(), 0.0);
          const auto v = values(x);
          for (std::size_t i = 0; i < v.size(); ++i) expected[i % expected.size()] += v[i];
          column_sum({x, out, accumulate});
          EXPECT_TRUE(close(out, expected, rounding(out.dtype()) * 1.01, 2e-5));
        }
  Generator random(3);
  const Tensor x = random.normal({3000, 33}, DType::f32), out = Tensor::empty({33}, DType::f32);
  EXPECT_TRUE(independent_of_threads({out}, [&] { column_sum({x, out}); }));
}

TEST(Elementwise, RejectsWhatDoesNotFit) {
  const Tensor a = Tensor::zeros({3}, DType::f32), b = Tensor::zeros({4}, DType::f32),
               half = Tensor::zeros({3}, DType::f16);
  EXPECT_THROW(add({a, b, a}), Error);
  EXPECT_THROW(add({a, Tensor::zeros({3}, DType::bf16), a}), Error);
  EXPECT_THROW(accumulate({half, a}), Error);
  EXPECT_THROW(scale({half, 2.0f}), Error);
  EXPECT_THROW(scale({Tensor::zeros({3, 4}, DType::f32).transpose(0, 1), 2.0f}), Error);
  EXPECT_THROW(cast({a, Tensor::zeros({3}, DType::f64)}), Error);
  EXPECT_THROW(cast({a, b}), Error);
  EXPECT_THROW(cast({Tensor(), a}), Error);
}

}  // namespace
}  // namespace quench
