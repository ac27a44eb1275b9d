#include "core/ops/packed_linear.h"

#include <array>
#include <cmath>
#include <cstring>
#include <random>

#include "core/number/float4.h"
#include "core/number/float8.h"
#include "core/ops/elementwise.h"
#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

// Any codes but NaN.
Tensor random_codes(Generator& random, const Shape& shape, DType dtype) {
  const Tensor codes = Tensor::empty(shape, dtype);
  auto* bytes = static_cast<std::uint8_t*>(codes.raw_data());
  for (std::size_t i = 0; i < codes.nbytes(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(random.below(256));
    if (dtype == DType::f8_e4m3 && (bytes[i] & 0x7F) == 0x7F) bytes[i] = 0;
  }
  return codes;
}

double code_value(const Tensor& codes, std::int64_t i) {
  const auto* bytes = static_cast<const std::uint8_t*>(codes.raw_data());
  const int nibble = bytes[i / 2] >> (i % 2 * 4) & 0xF;
  switch (codes.dtype()) {
    case DType::i4: return nibble < 8 ? nibble : nibble - 16;
    case DType::f4_e2m1: return E2m1::decode(static_cast<std::uint8_t>(nibble));
    case DType::i8: return codes.data<std::int8_t>()[i];
    default: return E4m3::decode(bytes[i]);
  }
}

struct PackedCase {
  DType codes, scales;
  std::int64_t rows, columns, group;
  bool offsets;
};

PackedMatrix make(Generator& random, const PackedCase& c) {
  const std::int64_t groups = (c.columns + c.group - 1) / c.group;
  const Tensor wide = random.normal({c.rows, groups}, DType::f32, 0.1);
  Tensor scales = wide;
  if (c.scales != DType::f32) {
    scales = Tensor::empty(wide.shape(), c.scales);
    cast({wide, scales});
  }
  return {c.group, random_codes(random, {c.rows, c.columns}, c.codes), scales,
          c.offsets ? random.normal({c.rows, groups}, DType::f32, 0.1) : Tensor()};
}

std::vector<double> expected_values(const PackedMatrix& m) {
  std::vector<double> result;
  for (std::int64_t row = 0; row < m.rows(); ++row)
    for (std::int64_t k = 0; k < m.columns(); ++k) {
      const std::int64_t at = row * m.groups() + k / m.group_size();
      const double offset = m.offsets().defined() ? m.offsets().data<float>()[at] : 0.0;
      result.push_back(get_element(m.scales(), at) * code_value(m.codes(), row * m.columns() + k) + offset);
    }
  return result;
}

std::vector<PackedCase> cases() {
  std::vector<PackedCase> all;
  for (const DType codes : {DType::i4, DType::i8, DType::f8_e4m3, DType::f4_e2m1})
    for (const DType scales : {DType::f32, DType::bf16, DType::f16})
      for (const bool offsets : {false, true})
        for (const auto& [rows, columns, group] : {std::array<std::int64_t, 3>{5, 64, 32},
                                                   {3, 96, 16},
                                                   {7, 130, 130},
                                                   {4, 128, 128},
                                                   {1, 2, 2},
                                                   {9, 70, 6},
                                                   {2, 200, 128},
                                                   {4, 512, 32},
                                                   {5, 640, 16},
                                                   {4, 1100, 1100},
                                                   {5, 768, 256}})
          if (columns < 512 || scales == DType::bf16)  // long rows take their time here
            all.push_back({codes, scales, rows, columns, group, offsets});
  return all;
}

std::string name(const PackedCase& c) {
  return fmt::format("{} {} {}x{} groups of {}{}", to_string(c.codes), to_string(c.scales), c.rows, c.columns, c.group,
                     c.offsets ? " offsets" : "");
}

TEST(PackedLinear, UnpackGivesTheValues) {
  Generator random(1);
  for (const PackedCase& c : cases()) {
    SCOPED_TRACE(name(c));
    const PackedMatrix m = make(random, c);
    const std::vector<double> expected = expected_values(m);
    double largest = 0;
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor out = random.normal({c.rows, c.columns}, dtype);
      unpack({m, out});
      // Product and sum are rounded to f32 before the result is.
      EXPECT_TRUE(close(out, expected, 1.01 * rounding(dtype), 0x1p-23 * largest));
    }
  }
}

TEST(PackedLinear, UnpackInBf16RoundsTheValuesOnce) {
  Generator random(1);
  for (const PackedCase& c : cases()) {
    SCOPED_TRACE(name(c));
    const PackedMatrix m = make(random, c);
    const Tensor wide = Tensor::empty({c.rows, c.columns}, DType::f32);
    const Tensor rounded = Tensor::empty(wide.shape(), DType::bf16), out = random.normal(wide.shape(), DType::bf16);
    unpack({m, wide});
    cast({wide, rounded});
    unpack({m, out});
    EXPECT_EQ(std::memcmp(out.raw_data(), rounded.raw_data(), out.nbytes()), 0);
  }
}

TEST(PackedLinear, GemmMatchesDequantizedValues) {
  Generator random(2);
  for (const PackedCase& c : cases())
    for (const std::int64_t m : {1, 2, 3, 4, 9, 18}) {
      const bool bias = m % 2 == 0;
      SCOPED_TRACE(fmt::format("{}, {} rows{}", name(c), m, bias ? ", bias" : ""));
      const PackedMatrix weight = make(random, c);
      const std::vector<double> w = expected_values(weight);
      for (const auto& [dtype, out] :
           {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}}) {
        const Tensor x = random.normal({m, c.columns}, dtype), b = bias ? random.normal({c.rows}, dtype) : Tensor();
        const Tensor y = random.normal_view({m, c.rows}, out, 3);
        packed_linear({x, weight, y, b});
        const auto vx = values(x), vb = bias ? values(b) : std::vector<double>(static_cast<std::size_t>(c.rows));
        std::vector<double> expected;
        double magnitude = 0;
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t n = 0; n < c.rows; ++n) {
            double sum = vb[static_cast<std::size_t>(n)], all = std::abs(sum);
            for (std::int64_t k = 0; k < c.columns; ++k) {
              const double term =
                  vx[static_cast<std::size_t>(i * c.columns + k)] * w[static_cast<std::size_t>(n * c.columns + k)];
              sum += term;
              all += std::abs(term);
            }
            expected.push_back(sum);
            magnitude = std::max(magnitude, all);
          }
        // With many rows weights are rounded to the dtype of x, and the sums of a plain product are in any order:
        // their rounding errors add up like steps at random.
        const double steps = std::sqrt(static_cast<double>(c.columns));
        const double weights = m > 4 * kPackedRows ? std::max(rounding(dtype), 0x1p-24 * steps) : 0x1p-22;
        EXPECT_TRUE(close(y, expected, 1.01 * rounding(out), weights * magnitude + 1e-6));
      }
    }
}

// A negative scale makes negative zeros of codes 0; without offsets nothing is added to them.
TEST(PackedLinear, ZerosKeepTheirSign) {
  const Tensor codes = Tensor::zeros({1, 32}, DType::i8), out = Tensor::empty({1, 32}, DType::f32);
  const PackedMatrix weight(32, codes, Tensor::from_values<float>({1, 1}, std::array{-0.5f}));
  unpack({weight, out});
  EXPECT_TRUE(std::signbit(out.data<float>()[0]));
  EXPECT_TRUE(std::signbit(out.data<float>()[31]));
}

// Exact integer sums by group: what is left are the roundings of scales in f32.
TEST(PackedIntegerLinear, GemmMatchesCodes) {
  Generator random(6);
  for (const PackedCase& c : cases()) {
    if (c.codes != DType::i4 && c.codes != DType::i8) continue;
    const PackedMatrix weight = make(random, c);
    if (!has_integer_products(weight)) continue;
    const std::vector<double> w = expected_values(weight);
    const Tensor weight_sums = packed_row_sums(weight);
    for (const std::int64_t m : {1, 2, 3, 4})
      for (const bool zero_points : {false, true})
        for (const DType out : {DType::f32, DType::bf16}) {
          SCOPED_TRACE(fmt::format("{}, {} rows{}", name(c), m, zero_points ? ", zero points" : ""));
          const Tensor x = random_codes(random, {m, c.columns}, DType::i8), scales = Tensor::empty({m, 1}, DType::f32);
          const Tensor zeros = zero_points ? Tensor::empty({m, 1}, DType::f32) : Tensor();
          const Tensor bias = zero_points ? random.normal({c.rows}, out) : Tensor();
          for (std::int64_t i = 0; i < m; ++i) {
            scales.data<float>()[i] = 0.01f * static_cast<float>(random.between(1, 100));
            if (zero_points) zeros.data<float>()[i] = static_cast<float>(random.between(-128, 127));
          }
          const Tensor y = random.normal_view({m, c.rows}, out, 3);
          packed_integer_linear({x, scales, zeros, weight, weight_sums, y, bias});
          std::vector<double> expected;
          double magnitude = 0;
          for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t n = 0; n < c.rows; ++n) {
              const double zero = zero_points ? zeros.data<float>()[i] : 0.0, scale = scales.data<float>()[i];
              double sum = zero_points ? get_element(bias, n) : 0.0, all = std::abs(sum);
              for (std::int64_t k = 0; k < c.columns; ++k) {
                const double value = w[static_cast<std::size_t>(n * c.columns + k)];
                sum += scale * (x.data<std::int8_t>()[i * c.columns + k] - zero) * value;
                // Codes are moved to 0 .. 255 and back.
                all += scale * (256.0 + std::abs(zero)) * std::abs(value);
              }
              expected.push_back(sum);
              magnitude = std::max(magnitude, all);
            }
          EXPECT_TRUE(close(y, expected, 1.01 * rounding(out), 0x1p-22 * magnitude + 1e-6));
        }
  }
}

// Codes at both ends of their range, where sums of 8- and 16-bit products leave their types. Scales of 1 and sums below
// 2^24: not one rounding, so that every level of instructions gives the same integers.
TEST(PackedIntegerLinear, ExtremeCodesGiveExactSums) {
  Generator random(8);
  for (const DType dtype : {DType::i4, DType::i8})
    for (const std::int64_t columns : {128, 96, 224}) {
      constexpr std::int64_t kRows = 5, kColumnsOfGroup = 32;
      SCOPED_TRACE(fmt::format("{}, {} columns", to_string(dtype), columns));
      const Tensor codes = Tensor::empty({kRows, columns}, dtype);
      auto* bytes = static_cast<std::uint8_t*>(codes.raw_data());
      constexpr std::array<std::uint8_t, 4> kBytes = {0x80, 0x7F, 0x88, 0x77};
      for (std::size_t i = 0; i < codes.nbytes(); ++i)
        bytes[i] = i < codes.nbytes() / 2 ? 0x80 : kBytes[random.below(4)];
      const std::int64_t groups = (columns + kColumnsOfGroup - 1) / kColumnsOfGroup;
      const Tensor scales = Tensor::empty({kRows, groups}, DType::f32), ones = Tensor::empty({4, 1}, DType::f32);
      fill(scales, 1);
      fill(ones, 1);
      const PackedMatrix weight(kColumnsOfGroup, codes, scales);
      const Tensor x = Tensor::empty({4, columns}, DType::i8), y = Tensor::empty({4, kRows}, DType::f32);
      for (std::int64_t i = 0; i < x.numel(); ++i)
        x.data<std::int8_t>()[i] = i < columns || random.coin() ? std::int8_t{-128} : std::int8_t{127};
      ASSERT_TRUE(has_integer_products(weight));
      packed_integer_linear({x, ones, {}, weight, packed_row_sums(weight), y, {}});
      for (std::int64_t m = 0; m < 4; ++m)
        for (std::int64_t n = 0; n < kRows; ++n) {
          double sum = 0;
          for (std::int64_t k = 0; k < columns; ++k)
            sum += x.data<std::int8_t>()[m * columns + k] * code_value(codes, n * columns + k);
          EXPECT_EQ(get_element(y, m * kRows + n), sum) << m << ", " << n;
        }
    }
}

// Integers as bf16 activations and powers of two as scales: exact at every level.
TEST(PackedLinear, SumsWithoutRoundingsAreExact) {
  Generator random(9);
  for (const DType dtype : {DType::i4, DType::i8, DType::f4_e2m1, DType::f8_e4m3})
    for (const std::int64_t m : {1, 2, 4}) {
      SCOPED_TRACE(fmt::format("{}, {} rows", to_string(dtype), m));
      const Tensor codes = random_codes(random, {6, 160}, dtype), scales = Tensor::empty({6, 5}, DType::f32);
      if (dtype == DType::f8_e4m3)  // a narrow range of exponents, subnormals among them
        for (std::size_t i = 0; i < codes.nbytes(); ++i) static_cast<std::uint8_t*>(codes.raw_data())[i] &= 0x9F;
      fill(scales, 0.25);
      const PackedMatrix weight(32, codes, scales);
      const Tensor x = Tensor::empty({m, 160}, DType::bf16), y = Tensor::empty({m, 6}, DType::f32);
      for (std::int64_t i = 0; i < x.numel(); ++i) set_element(x, i, static_cast<double>(random.between(-3, 3)));
      packed_linear({x, weight, y, {}});
      for (std::int64_t row = 0; row < m; ++row)
        for (std::int64_t n = 0; n < 6; ++n) {
          double sum = 0;
          for (std::int64_t k = 0; k < 160; ++k)
            sum += 0.25 * get_element(x, row * 160 + k) * code_value(codes, n * 160 + k);
          EXPECT_EQ(get_element(y, row * 6 + n), sum) << row << ", " << n;
        }
    }
}

TEST(PackedIntegerLinear, RefusesWhatDoesNotFit) {
  Generator random(7);
  const PackedMatrix weight = make(random, {DType::i8, DType::f32, 4, 32, 32, false});
  const Tensor x = random_codes(random, {1, 32}, DType::i8), scales = Tensor::zeros({1, 1}, DType::f32),
               y = Tensor::empty({1, 4}, DType::f32), sums = packed_row_sums(weight);
  EXPECT_NO_THROW(packed_integer_linear({x, scales, {}, weight, sums, y, {}}));
  EXPECT_THROW(packed_integer_linear({x, scales, {}, weight, Tensor::zeros({3}, DType::f32), y, {}}), Error);
  EXPECT_THROW(packed_integer_linear({random_codes(random, {5, 32}, DType::i8),
                                      Tensor::zeros({5, 1}, DType::f32),
                                      {},
                                      weight,
                                      sums,
                                      Tensor::empty({5, 4}, DType::f32),
                                      {}}),
               Error);
  EXPECT_FALSE(has_integer_products(make(random, {DType::f8_e4m3, DType::f32, 4, 32, 32, false})));
  EXPECT_FALSE(has_integer_products(make(random, {DType::i8, DType::f32, 4, 36, 6, false})));
}

TEST(PackedLinear, ThreadsChangeNothing) {
  Generator random(3);
  const PackedMatrix weight = make(random, {DType::i4, DType::bf16, 300, 256, 32, false});
  const Tensor x = random.normal({2, 256}, DType::f32), y = Tensor::empty({2, 300}, DType::f32);
  const Tensor values = Tensor::empty({300, 256}, DType::bf16);
  EXPECT_TRUE(independent_of_threads({y, values}, [&] {
    packed_linear({x, weight, y, {}});
    unpack({weight, values});
  }));
}

TEST(PackedLinear, RowsOfSeveralMatricesStandBelowEachOther) {
  Generator random(4);
  const PackedCase c{DType::i4, DType::bf16, 6, 64, 32, true};
  const PackedMatrix a = make(random, c), b = make(random, c);
  const PackedMatrix both = concatenate_rows(std::array{a, b});
  ASSERT_EQ(both.rows(), 12);
  auto expected = expected_values(a);
  const auto second = expected_values(b);
  expected.insert(expected.end(), second.begin(), second.end());
  const Tensor out = Tensor::empty({12, 64}, DType::f32);
  unpack({both, out});
  EXPECT_TRUE(close(out, expected, 1e-6, 1e-6));
  const Tensor tail = Tensor::empty({6, 64}, DType::f32);
  unpack({both.narrow_rows(6, 6), tail});
  EXPECT_TRUE(close(tail, second, 1e-6, 1e-6));
}

TEST(PackedLinear, RefusesWhatDoesNotFit) {
  Generator random(5);
  const PackedMatrix weight = make(random, {DType::i8, DType::f32, 4, 32, 32, false});
  const Tensor y = Tensor::empty({1, 4}, DType::f32);
  EXPECT_THROW(packed_linear({random.normal({1, 16}, DType::f32), weight, y, {}}), Error);
  EXPECT_THROW(packed_linear({random.normal({1, 32}, DType::f32), weight, Tensor::empty({1, 5}, DType::f32), {}}),
               Error);
  EXPECT_THROW(unpack({weight, Tensor::empty({4, 31}, DType::f32)}), Error);
  EXPECT_THROW(PackedMatrix(3, Tensor::empty({2, 6}, DType::i4), Tensor::empty({2, 2}, DType::f32)), Error);
  EXPECT_THROW(PackedMatrix(2, Tensor::empty({2, 6}, DType::i4), Tensor::empty({2, 2}, DType::f32)), Error);
  EXPECT_THROW(PackedMatrix(2, Tensor::empty({2, 6}, DType::i32), Tensor::empty({2, 3}, DType::f32)), Error);
}

}  // namespace
}  // namespace quench
