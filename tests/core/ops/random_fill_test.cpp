#include "core/ops/weights/random_fill.h"

#include <cmath>
#include <numbers>

#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

TEST(RandomFill, NormalEqualsTheLibraryFunctions) {
  const std::uint32_t edges[] = {0u,          1u,          0x1FFFFFFFu, 0x20000000u, 0x5FFFFFFFu,
                                 0x7FFFFFFFu, 0x80000000u, 0xFFFFFFFEu, ~0u};
  long double log_error = 0, angle_error = 0;
  const auto check = [&](std::uint32_t word) {
    const long double log = std::log((word + 1.0L) * 0x1p-32L);
    const long double angle = 2 * std::numbers::pi_v<long double> * (word * 0x1p-32L);
    if (log != 0) log_error = std::max(log_error, std::abs(log_of_unit(word) / log - 1));
    const UnitVector direction = unit_vector(word);
    angle_error = std::max(
        {angle_error, std::abs(direction.cosine - std::cos(angle)), std::abs(direction.sine - std::sin(angle))});
  };
  for (const std::uint32_t word : edges) check(word);
  for (std::uint64_t i = 0; i < 200000; ++i) check(random_word({1, 2, 3}, i));
  EXPECT_EQ(log_of_unit(~0u), 0.0);
  EXPECT_LT(log_error, 4e-16L);
  EXPECT_LT(angle_error, 2e-16L);
}

TEST(RandomFill, EveryPartHasTheDrawsOfItsElements) {
  const RandomKey key{9, hash64("lm_head.weight"), 0};
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const RandomDistribution distribution : {RandomDistribution::normal, RandomDistribution::uniform})
      for (const std::uint64_t first : {0ull, 1ull, 3ull, 4ull, 1000003ull})
        for (const std::int64_t count : {1, 2, 5, 40001}) {
          const Tensor out = Tensor::empty({count}, dtype);
          random_fill({out, key, first, distribution, 0.25f});
          for (std::int64_t i = 0; i < count; ++i) {
            const std::uint64_t element = first + static_cast<std::uint64_t>(i);
            const float draw = distribution == RandomDistribution::normal
                                   ? random_normal(key, element)
                                   : 2.0f * to_uniform(random_word(key, element)) - 1.0f;
            const double expected = dtype == DType::bf16 ? static_cast<float>(bfloat16(0.25f * draw)) : 0.25f * draw;
            ASSERT_EQ(get_element(out, i), expected) << first << "+" << i;
          }
        }
}

TEST(RandomFill, Operands) {
  EXPECT_THROW(random_fill({.out = Tensor::empty({4}, DType::i32), .key = {}}), Error);
  EXPECT_THROW(random_fill({.out = Tensor::empty({4, 4}, DType::f32).narrow(1, 0, 2), .key = {}}), Error);
  random_fill({.out = Tensor::empty({0}, DType::f32), .key = {}});
}

}  // namespace
}  // namespace quench
