#include "export/formats/packed_words/bit_packing.h"

#include <gtest/gtest.h>

#include <random>

namespace quench {
namespace {

Tensor codes_of(const Shape& shape, const std::function<int(std::int64_t)>& value) {
  const Tensor codes = Tensor::empty(shape, DType::i8);
  for (std::int64_t i = 0; i < codes.numel(); ++i) codes.data<std::int8_t>()[i] = static_cast<std::int8_t>(value(i));
  return codes;
}

std::vector<std::uint32_t> words(const Tensor& t) {
  const auto* p = t.data<std::int32_t>();
  return {p, p + t.numel()};
}

TEST(BitPacking, FourBits) {
  constexpr std::array kValues = {-8, -7, -1, 0, 1, 2, 6, 7};
  const Tensor packed =
      pack_rows(codes_of({1, 8}, [&](std::int64_t i) { return kValues[static_cast<std::size_t>(i)]; }), 4);
  EXPECT_EQ(words(packed), (std::vector<std::uint32_t>{0xFEA98710}));
}

TEST(BitPacking, ThreeBitsStraddleWords) {
  const Tensor packed = pack_rows(codes_of({1, 32}, [](std::int64_t i) { return static_cast<int>(5 * i % 8) - 4; }), 3);
  EXPECT_EQ(words(packed), (std::vector<std::uint32_t>{0xA878CEA8, 0xCEA878CE, 0x78CEA878}));
}

TEST(BitPacking, EveryWidthComesBack) {
  std::mt19937 random(1);
  for (int bits = 1; bits <= 8; ++bits)
    for (const std::int64_t columns : {1, 31, 32, 33, 100}) {
      const int half = 1 << (bits - 1);
      const Tensor codes =
          codes_of({3, columns}, [&](std::int64_t) { return static_cast<int>(random() % (2u * half)) - half; });
      const Tensor back = unpack_rows(pack_rows(codes, bits), bits, columns);
      for (std::int64_t i = 0; i < codes.numel(); ++i)
        ASSERT_EQ(back.data<std::int8_t>()[i], codes.data<std::int8_t>()[i]) << bits << " bits, " << columns;
      const Tensor zeros = Tensor::empty({columns, 3}, DType::f32);
      for (std::int64_t i = 0; i < zeros.numel(); ++i) zeros.data<float>()[i] = codes.data<std::int8_t>()[i];
      const Tensor packed = pack_zero_points(zeros, bits);
      EXPECT_EQ(packed.shape(), (Shape{(columns * bits + 31) / 32, 3}));
      const Tensor zeros_back = unpack_zero_points(packed, bits, columns);
      for (std::int64_t i = 0; i < zeros.numel(); ++i)
        ASSERT_EQ(zeros_back.data<float>()[i], zeros.data<float>()[i]) << bits << " bits, " << columns;
    }
}

}  // namespace
}  // namespace quench
