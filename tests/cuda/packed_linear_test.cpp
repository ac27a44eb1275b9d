#include "core/ops/packed_linear.h"

#include "core/ops/elementwise.h"
#include "tests/cuda/cuda_testing.h"

namespace quench {
namespace {

using namespace testing;

PackedMatrix make(Generator& random, DType codes_dtype, DType scales_dtype, std::int64_t rows, std::int64_t columns,
                  std::int64_t group, bool offsets) {
  const Tensor codes = Tensor::empty({rows, columns}, codes_dtype);
  auto* bytes = static_cast<std::uint8_t*>(codes.raw_data());
  for (std::size_t i = 0; i < codes.nbytes(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(random.below(256));
    if (codes_dtype == DType::f8_e4m3 && (bytes[i] & 0x7F) == 0x7F) bytes[i] = 0;
  }
  const Shape shape{rows, (columns + group - 1) / group};
  const Tensor wide = random.normal(shape, DType::f32, 0.1);
  Tensor scales = wide;
  if (scales_dtype != DType::f32) {
    scales = Tensor::empty(shape, scales_dtype);
    cast(CastArgs{wide, scales});
  }
  return {group, codes, scales, offsets ? random.normal(shape, DType::f32, 0.1) : Tensor()};
}

TEST(CudaPackedLinear, MatchesCpu) {
  Generator random(1);
  for (const DType codes : {DType::i4, DType::i8, DType::f8_e4m3, DType::f4_e2m1})
    for (const DType scales : {DType::f32, DType::bf16, DType::f16})
      for (const bool offsets : {false, true})
        for (const auto& [rows, columns, group] : {std::array<std::int64_t, 3>{37, 256, 32},
                                                   {5, 4096, 128},
                                                   {9, 512, 512},
                                                   {130, 96, 16},
                                                   {3, 70, 6},
                                                   {2, 200, 128},
                                                   {6, 512, 16},
                                                   {4101, 128, 64}}) {
          SCOPED_TRACE(fmt::format("{} {} {}x{} groups of {}{}", to_string(codes), to_string(scales), rows, columns,
                                   group, offsets ? " offsets" : ""));
          const PackedMatrix weight = make(random, codes, scales, rows, columns, group, offsets);
          const PackedMatrix there = weight.to(kGpu);
          for (const DType dtype : {DType::f32, DType::bf16}) {
            const Tensor values = Tensor::empty({rows, columns}, dtype),
                         gpu_values = Tensor::empty({rows, columns}, dtype, kGpu);
            unpack({weight, values});
            unpack({there, gpu_values});
            EXPECT_TRUE(same_bits(on_cpu(gpu_values), values));
            for (const std::int64_t m : {1, 2, 3, 4, 7, 16}) {
              const Tensor x = random.normal({m, columns}, dtype), bias = random.normal({rows}, dtype);
              const Tensor y = Tensor::empty({m, rows}, DType::f32), gpu_y = Tensor::empty({m, rows}, DType::f32, kGpu);
              packed_linear({x, weight, y, bias});
              packed_linear({x.to(kGpu), there, gpu_y, bias.to(kGpu)});
              const auto expected = testing::values(y);
              double largest = 0;
              for (const double value : expected) largest = std::max(largest, std::abs(value));
              EXPECT_TRUE(close(on_cpu(gpu_y), expected, 1e-5, 3e-5 * largest)) << m << " rows";
            }
          }
        }
}

// One scale per row multiplies finished sums; with many rows a warp takes several tiles, of whole and of partial rounds
// of loads.
// All numbers of rows of the kernel that reads the weight once, on shapes with a partial last K tile and with splits.
TEST(CudaPackedLinear, ManyRowsMatchTheCpu) {
  Generator random(7);
  for (const DType codes : {DType::i4, DType::i8, DType::f8_e4m3, DType::f4_e2m1})
    for (const bool offsets : {false, true})
      for (const auto& [rows, columns, group] : {std::array<std::int64_t, 3>{300, 2048, 32},
                                                 {200, 576, 64},
                                                 {130, 576, 576},
                                                 {128, 4096, 128},
                                                 {700, 96, 32},
                                                 {300, 512, 16},
                                                 {20000, 64, 32}}) {
        // Groups of 16: the kernel takes i8 codes without offsets alone.
        if (group == 16 && (codes != DType::i8 || offsets)) continue;
        SCOPED_TRACE(
            fmt::format("{} {}x{} groups of {}{}", to_string(codes), rows, columns, group, offsets ? " offsets" : ""));
        const PackedMatrix weight =
            make(random, codes, random.coin() ? DType::f32 : DType::f16, rows, columns, group, offsets);
        const PackedMatrix there = weight.to(kGpu);
        const Tensor x = random.normal({64, columns}, DType::bf16), bias = random.normal({rows}, DType::bf16);
        const Tensor expected = Tensor::empty({64, rows}, DType::f32);
        for (std::int64_t row = 0; row < 64; row += 4)
          packed_linear({x.narrow(0, row, 4), weight, expected.narrow(0, row, 4), bias});
        double largest = 0;
        for (const double value : testing::values(expected)) largest = std::max(largest, std::abs(value));
        Tensor first;  // sums have one order for all numbers of rows
        for (const std::int64_t m : {2, 8, 9, 24, 33, 64}) {
          const Tensor y = Tensor::empty({m, rows}, DType::f32, kGpu);
          packed_linear({x.narrow(0, 0, m).to(kGpu), there, y, bias.to(kGpu)});
          const Tensor got = on_cpu(y);
          EXPECT_TRUE(close(got, testing::values(expected.narrow(0, 0, m)), 1e-5, 3e-5 * largest)) << m << " rows";
          if (m < 8) continue;  // the kernel of few rows
          const Tensor eight = got.narrow(0, 0, 8).clone();
          if (first.defined()) {
            EXPECT_TRUE(same_bits(eight, first)) << m << " rows";
          }
          first = eight;
        }
      }
}

TEST(CudaPackedLinear, RowScalesMatchCpu) {
  Generator random(3);
  for (const DType codes : {DType::i8, DType::f8_e4m3})
    for (const DType scales : {DType::f32, DType::bf16, DType::f16})
      for (const auto& [rows, columns] :
           {std::pair<std::int64_t, std::int64_t>{40000, 256}, {40003, 192}, {8200, 320}, {33, 8192}})
        for (const std::int64_t m : {1, 3}) {
          const PackedMatrix weight = make(random, codes, scales, rows, columns, columns, false);
          const Tensor x = random.normal({m, columns}, DType::bf16), bias = random.normal({rows}, DType::bf16);
          const Tensor y = Tensor::empty({m, rows}, DType::f32), gpu_y = Tensor::empty({m, rows}, DType::f32, kGpu);
          packed_linear({x, weight, y, bias});
          packed_linear({x.to(kGpu), weight.to(kGpu), gpu_y, bias.to(kGpu)});
          const auto expected = values(y);
          double largest = 0;
          for (const double value : expected) largest = std::max(largest, std::abs(value));
          EXPECT_TRUE(close(on_cpu(gpu_y), expected, 1e-5, 3e-5 * largest))
              << to_string(codes) << " " << to_string(scales) << " " << rows << "x" << columns << ", " << m << " rows";
        }
}

// The tensor cores may read x as f16, times a power of two for each row.
TEST(CudaPackedLinear, RowsHaveTheirOwnMagnitude) {
  constexpr std::int64_t kRows = 40, kColumns = 512, kM = 4;
  Generator random(2);
  for (const DType codes : {DType::i4, DType::i8, DType::f8_e4m3, DType::f4_e2m1})
    for (const float size : {1e-30f, 1e-15f, 1e-4f, 1e6f, 1e30f}) {
      SCOPED_TRACE(fmt::format("{} {}", to_string(codes), size));
      const PackedMatrix weight = make(random, codes, DType::bf16, kRows, kColumns, 128, true);
      const Tensor x = random.normal({kM, kColumns}, DType::bf16);
      auto* at = x.data<bfloat16>();
      for (std::int64_t k = 0; k < kColumns; ++k) {
        at[k] = bfloat16(static_cast<float>(at[k]) * size);
        at[kColumns + k] = bfloat16(0.0f);
      }
      at[2 * kColumns + 7] = bfloat16(size);  // next to values of about 1
      at[3 * kColumns + 5] = bfloat16(NAN);
      const Tensor y = Tensor::empty({kM, kRows}, DType::f32), gpu_y = Tensor::empty({kM, kRows}, DType::f32, kGpu);
      packed_linear({x, weight, y, {}});
      packed_linear({x.to(kGpu), weight.to(kGpu), gpu_y, {}});
      const auto expected = values(y), actual = values(on_cpu(gpu_y));
      for (std::int64_t row = 0; row < kM - 1; ++row) {
        double largest = 0;
        for (std::int64_t i = 0; i < kRows; ++i) largest = std::max(largest, std::abs(expected[row * kRows + i]));
        for (std::int64_t i = 0; i < kRows; ++i)
          EXPECT_NEAR(actual[row * kRows + i], expected[row * kRows + i], 3e-5 * largest) << row << " " << i;
      }
      for (std::int64_t i = 0; i < kRows; ++i) EXPECT_TRUE(std::isnan(actual[3 * kRows + i])) << i;
    }
}

}  // namespace
}  // namespace quench
