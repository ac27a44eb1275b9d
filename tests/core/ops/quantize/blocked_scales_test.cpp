// Block scales in 128 x 4 tiles, as TorchAO makes them (tests/reference/make_blocked_scales.py).

#include "core/ops/quantize/blocked_scales.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "core/json/json.h"
#include "core/number/blocked_scale.h"
#include "core/ops/quantize/quantize.h"
#include "tests/core/ops/op_testing.h"
#include "tests/core/ops/quantize/blocked_scales_cases.h"
#include "tests/reference_numbers.h"
#include "tests/testing.h"

namespace quench {
namespace {

using testing::blocked_scale_bytes_case;
using ::testing::HasSubstr;
using testing::mixed;

void expect_described(const Tensor& blocked, const Json& theirs) {
  EXPECT_EQ(blocked.numel(), theirs.at("bytes").as_int());
  EXPECT_EQ(testing::checksum({static_cast<const std::byte*>(blocked.raw_data()), blocked.nbytes()}),
            theirs.at("checksum").as_string());
}

Json reference() {
  return Json::parse_file(testing::source_dir() / "tests/reference/blocked_scales.json");
}

TEST(BlockedScalesGolden, LayoutIsTorchAos) {
  const Json all = reference();
  ASSERT_GE(all.at("matrices").as_array().size(), 11u);
  for (const Json& theirs : all.at("matrices").as_array()) {
    const std::int64_t rows = theirs.at("rows").as_int(), columns = theirs.at("columns").as_int();
    SCOPED_TRACE(fmt::format("{} x {}", rows, columns));
    expect_described(to_blocked(blocked_scale_bytes_case(rows, columns)), theirs);
  }
}

TEST(BlockedScalesGolden, CastScalesMatchTorchAo) {
  constexpr std::int64_t kRows = 200, kColumns = 416;
  const Tensor x = Tensor::empty({kRows, kColumns}, DType::bf16);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const std::uint32_t bits = mixed(static_cast<std::uint32_t>(i + 1));
    x.data<bfloat16>()[i] =
        bfloat16(std::ldexp(static_cast<float>(static_cast<int>(bits >> 24) - 128), -static_cast<int>(bits % 12)));
  }
  const Json all = reference();
  expect_described(to_blocked(quantize_mx(x, {}).scales()), all.at("mx"));
  const Tensor global = nvfp4_global_scale(amax(x, Granularity::tensor));
  expect_described(to_blocked(quantize_nvfp4(x, global).scales()), all.at("nvfp4"));
}

// For two tile columns, by hand.
TEST(BlockedScales, Offsets) {
  constexpr std::int64_t kColumns = 8;
  struct Place {
    std::int64_t row, column, offset;
  };
  for (const Place& p : {Place{0, 0, 0}, Place{0, 1, 1}, Place{0, 4, 512}, Place{1, 0, 16}, Place{32, 0, 4},
                         Place{33, 5, 533}, Place{127, 3, 511}, Place{128, 0, 1024}, Place{200, 7, 1675}})
    EXPECT_EQ(blocked_scale_offset(p.row, p.column, kColumns), p.offset) << p.row << ", " << p.column;
  EXPECT_EQ(blocked_scale_bytes(129, 5), 2 * 2 * 512);
  EXPECT_EQ(blocked_scale_bytes(0, 5), 0);
}

TEST(BlockedScales, PaddingIsZero) {
  const Tensor scales = blocked_scale_bytes_case(130, 5);
  Tensor blocked = Tensor::empty({blocked_scale_bytes(130, 5)}, DType::u8);
  std::fill_n(blocked.data<std::uint8_t>(), blocked.numel(), std::uint8_t{0xAA});
  to_blocked({scales, blocked});
  std::vector<std::uint8_t> expected(static_cast<std::size_t>(blocked.numel()), 0);
  for (std::int64_t r = 0; r < 130; ++r)
    for (std::int64_t c = 0; c < 5; ++c)
      expected[static_cast<std::size_t>(blocked_scale_offset(r, c, 5))] = scales.data<std::uint8_t>()[r * 5 + c];
  EXPECT_TRUE(std::ranges::equal(std::span(blocked.data<std::uint8_t>(), expected.size()), expected));
}

TEST(BlockedScales, NamesBadOperands) {
  const auto message = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_THAT(message([] { (void)to_blocked(Tensor::zeros({4, 4}, DType::f32)); }), HasSubstr("one byte an element"));
  EXPECT_THAT(message([] { (void)to_blocked(Tensor::zeros({4}, DType::u8)); }), HasSubstr("expected a matrix"));
  EXPECT_THAT(message([] {
                to_blocked({Tensor::zeros({4, 4}, DType::u8), Tensor::zeros({100}, DType::u8)});
              }),
              HasSubstr("blocked"));
}

}  // namespace
}  // namespace quench
