#include "core/ops/basic/mul.h"

#include <gmock/gmock.h>

#include "tests/core/ops/op_testing.h"
#include "tests/seams/refusal.h"

namespace quench {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

const Shape kShapes[] = {{1}, {40000}, {1, 1}, {5, 7}, {3, 4, 16}, {33, 129}, {700, 64}, {0, 4}};

TEST(Mul, MultipliesTensorsOfOneShapeWithOneRounding) {
  std::uint32_t seed = 1;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool wide : {false, true})
      for (const Shape& shape : kShapes) {
        SCOPED_TRACE(fmt::format("{} wide {} {}", to_string(dtype), wide, shape.to_string()));
        Generator random(++seed);
        const Tensor a = random.normal(shape, dtype), b = random.normal(shape, dtype);
        const Tensor out = Tensor::empty(shape, wide ? DType::f32 : dtype), old_a = a.clone(), old_b = b.clone();
        const auto va = values(a), vb = values(b);
        std::vector<double> expected(va.size());
        for (std::size_t i = 0; i < va.size(); ++i) expected[i] = va[i] * vb[i];
        mul({a, b, out});
        EXPECT_TRUE(close(out, expected, rounding(out.dtype()), 1e-40));
        EXPECT_TRUE(same_bits(a, old_a) && same_bits(b, old_b));
        if (out.dtype() != dtype) continue;
        mul({a, b, a});
        EXPECT_TRUE(same_bits(a, out));
      }
}

TEST(Mul, MultipliesEachRowByAVector) {
  std::uint32_t seed = 40;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(fmt::format("{}{}", to_string(dtype), shape.to_string()));
      Generator random(++seed);
      const Tensor a = random.normal(shape, dtype), b = random.normal({shape[-1]}, dtype);
      const Tensor out = Tensor::empty(shape, DType::f32), old_b = b.clone();
      const auto va = values(a), vb = values(b);
      std::vector<double> expected(va.size());
      for (std::size_t i = 0; i < va.size(); ++i) expected[i] = va[i] * vb[i % vb.size()];
      mul({a, b, out});
      EXPECT_TRUE(close(out, expected, rounding(DType::f32), 1e-40));
      mul({a, b, a});
      EXPECT_TRUE(close(a, expected, rounding(dtype), 1e-40));
      EXPECT_TRUE(same_bits(b, old_b));
    }
}

TEST(Mul, NamesOperandsThatDoNotFit) {
  const Tensor x = Tensor::zeros({3, 4}, DType::f32), half = Tensor::zeros({3, 4}, DType::bf16),
               meta = Tensor::empty({3, 4}, DType::f32, Device{DeviceType::meta});
  EXPECT_THAT(refusal([&] {
                mul({x, Tensor::zeros({3}, DType::f32), x});
              }),
              AllOf(HasSubstr("mul"), HasSubstr("f32[3, 4]"), HasSubstr("f32[3]")));
  EXPECT_THAT(refusal([&] { mul({x, half, x}); }), AllOf(HasSubstr("mul"), HasSubstr("bf16[3, 4]")));
  EXPECT_THAT(refusal([&] { mul({x, x, half}); }), AllOf(HasSubstr("mul"), HasSubstr("out is bf16[3, 4]")));
  EXPECT_THAT(refusal([&] { mul({x, meta, x}); }), AllOf(HasSubstr("mul"), HasSubstr("cpu"), HasSubstr("meta")));
  EXPECT_THAT(refusal([&] { mul({x, Tensor(), x}); }), AllOf(HasSubstr("mul"), HasSubstr("undefined")));
  EXPECT_THAT(refusal([&] { mul({x, x.view({4, 3}).transpose(0, 1), x}); }), HasSubstr("contiguous"));
  EXPECT_THAT(refusal([&] {
                mul({Tensor::zeros({2}, DType::i32), Tensor::zeros({2}, DType::i32), x});
              }),
              AllOf(HasSubstr("mul"), HasSubstr("i32[2]")));
}

TEST(BroadcastRows, WritesAScaledVectorOrOneValueToEachRow) {
  std::uint32_t seed = 80;
  for (const DType from_dtype : {DType::f32, DType::bf16})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const Shape& shape : {Shape{1, 1}, Shape{1, 70000}, Shape{5, 7}, Shape{600, 64}, Shape{0, 3}})
        for (const std::int64_t width : {std::int64_t{1}, shape[1]}) {
          Generator random(++seed);
          const Tensor from = random.normal({width}, from_dtype), out = Tensor::empty(shape, dtype);
          const auto v = values(from);
          std::vector<double> expected(static_cast<std::size_t>(shape.numel()));
          for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = 0.25 * v[i % v.size()];
          broadcast_rows({.from = from, .out = out, .scale = 0.25f});
          EXPECT_TRUE(close(out, expected, rounding(dtype), 1e-40)) << shape.to_string() << " width " << width;
        }
}

TEST(BroadcastRows, NamesOperandsThatDoNotFit) {
  const Tensor out = Tensor::zeros({3, 4}, DType::f32);
  EXPECT_THAT(refusal([&] {
                broadcast_rows({Tensor::zeros({3}, DType::f32), out});
              }),
              AllOf(HasSubstr("broadcast_rows"), HasSubstr("f32[3]"), HasSubstr("f32[3, 4]")));
  EXPECT_THAT(refusal([&] { broadcast_rows({Tensor::zeros({4}, DType::f16), out}); }), HasSubstr("f16[4]"));
  EXPECT_THAT(refusal([&] { broadcast_rows({Tensor::zeros({1, 4}, DType::f32), out}); }), HasSubstr("f32[1, 4]"));
}

}  // namespace
}  // namespace quench
