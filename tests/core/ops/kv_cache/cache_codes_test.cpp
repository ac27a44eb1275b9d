#include "core/ops/kv_cache/cache_codes.h"

#include <limits>

#include "core/ops/kv_cache/kv_format.h"
#include "tests/core/ops/kv_cache/cache_cases.h"

namespace quench {
namespace {

using testing::CodedCache;
using testing::Generator;
using testing::kCacheCodes;

TEST(CacheCodes, EveryFormatHasItsLargestCode) {
  EXPECT_EQ(kv_formats().front().name, "fp8");
  for (const KvFormat& format : kv_formats()) EXPECT_EQ(find_kv_format(format.codes), &format);
  EXPECT_EQ(find_kv_format(DType::bf16), nullptr);
}

TEST(CacheCodes, EachHeadOfATokenIsRoundedUnderItsScale) {
  Generator random(1);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const DType codes : kCacheCodes)
      for (const bool shared : {true, false})
        for (const std::int64_t dim : {8, 20, 64}) {
          const Tensor values = random.normal_view({5, 4 * dim}, dtype, 3);
          CodedCache cache(9, 4, dim, codes, shared);
          if (shared) cache.calibrate(values);
          const std::vector<std::int32_t> rows = {7, 0, 9, -1, 3};  // two outside
          append_codes({.values = values,
                        .positions = Tensor::from_values<std::int32_t>({5}, rows),
                        .cache = cache.cache,
                        .scales = cache.scales});
          for (std::int64_t i = 0; i < 5; ++i) {
            if (rows[static_cast<std::size_t>(i)] < 0 || rows[static_cast<std::size_t>(i)] > 8) continue;
            const std::int64_t row = rows[static_cast<std::size_t>(i)];
            for (std::int64_t h = 0; h < 4; ++h) {
              const auto element = [&](std::int64_t d) {
                return static_cast<float>(
                    testing::get_element(values, testing::offset_of(values, i * 4 * dim + h * dim + d)));
              };
              float most = 0;
              for (std::int64_t d = 0; d < dim; ++d) most = std::max(most, std::abs(element(d)));
              if (!shared) {
                EXPECT_EQ(cache.scale(row, h), most / cache.largest_code());
              }
              const float scale = cache.scale(row, h);
              for (std::int64_t d = 0; d < dim; ++d) {
                const float x = element(d), got = cache.value(row, h, d);
                // Half a unit in the last place: of e4m3, or of the scale.
                const float bound = codes == DType::i8 ? 0.501f * scale : std::abs(x) / 16 + scale * 0x1p-10f;
                EXPECT_NEAR(got, x, bound);
              }
            }
          }
          EXPECT_EQ(cache.code(1, 0, 0), 0) << "other rows stay";
        }
}

TEST(CacheCodes, DecodingIsCodeTimesScale) {
  Generator random(2);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const DType codes : kCacheCodes)
      for (const bool shared : {true, false})
        for (const std::int64_t dim : {6, 64}) {
          const CodedCache cache(random.normal({7, 4 * dim}, DType::f32), 4, codes, shared);
          const Tensor out = Tensor::empty(cache.cache.shape(), dtype);
          decode_codes({.cache = cache.cache, .scales = cache.scales, .out = out});
          for (std::int64_t i = 0; i < 7; ++i)
            for (std::int64_t h = 0; h < 4; ++h)
              for (std::int64_t d = 0; d < dim; ++d) {
                const float exact = cache.value(i, h, d);
                const float expected = dtype == DType::f32 ? exact : static_cast<float>(bfloat16(exact));
                ASSERT_EQ(testing::get_element(out, (i * 4 + h) * dim + d), static_cast<double>(expected));
              }
        }
}

TEST(CacheCodes, ZeroVectorsHaveScaleOneAndNanStays) {
  for (const DType codes : kCacheCodes) {
    const Tensor values = Tensor::zeros({2, 2 * 8}, DType::f32);
    values.data<float>()[16 + 3] = std::numeric_limits<float>::quiet_NaN();
    const CodedCache cache(values, 2, codes, false);
    EXPECT_EQ(cache.scale(0, 0), 1.0f);
    EXPECT_EQ(cache.value(0, 1, 5), 0.0f);
    EXPECT_TRUE(std::isnan(cache.value(1, 0, 3)));
    EXPECT_EQ(cache.value(1, 1, 3), 0.0f) << "another head";
  }
  // Beyond a calibrated range: the largest code.
  CodedCache cache(1, 2, 8, DType::f8_e4m3, true);
  testing::fill(cache.scales, 0.5);
  const Tensor values = Tensor::zeros({1, 16}, DType::f32);
  testing::fill(values, 1000.0);
  append_codes(
      {.values = values, .positions = Tensor::zeros({1}, DType::i32), .cache = cache.cache, .scales = cache.scales});
  EXPECT_EQ(cache.value(0, 0, 0), 224.0f);
}

TEST(CacheCodes, DoNotDependOnThreads) {
  Generator random(3);
  const Tensor values = random.normal({300, 8 * 64}, DType::bf16);
  CodedCache cache(300, 8, 64, DType::f8_e4m3, false);
  const Tensor out = Tensor::empty(values.shape(), DType::bf16);
  EXPECT_TRUE(testing::independent_of_threads({cache.cache, cache.scales, out}, [&] {
    cache = CodedCache(values, 8, DType::f8_e4m3, false);
    decode_codes({.cache = cache.cache, .scales = cache.scales, .out = out});
  }));
}

TEST(CacheCodes, WrongOperandsAreNamed) {
  const Tensor values = Tensor::zeros({2, 32}, DType::f32), positions = Tensor::zeros({2}, DType::i32);
  const CodedCache good(4, 4, 8, DType::i8, true);
  const auto append = [&](const Tensor& x, const Tensor& cache, const Tensor& scales) {
    append_codes({.values = x, .positions = positions, .cache = cache, .scales = scales});
  };
  append(values, good.cache, good.scales);
  EXPECT_THROW(append(Tensor::zeros({2, 16}, DType::f32), good.cache, good.scales), Error);
  EXPECT_THROW(append(values, Tensor::zeros({4, 32}, DType::f32), good.scales), Error) << "no codes";
  EXPECT_THROW(append(values, good.cache, Tensor::zeros({3}, DType::f32)), Error) << "odd number of vectors";
  EXPECT_THROW(append(values, good.cache, Tensor::zeros({4}, DType::bf16)), Error);
  EXPECT_THROW(append(values, good.cache, Tensor::zeros({3, 4}, DType::f32)), Error) << "other capacity";
  EXPECT_THROW(append(values, good.cache, Tensor()), Error);
  EXPECT_THROW(decode_codes({.cache = good.cache, .scales = good.scales, .out = Tensor::zeros({4, 16}, DType::f32)}),
               Error);
}

}  // namespace
}  // namespace quench
