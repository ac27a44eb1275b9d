#include "core/ops/global_norm.h"

#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

double run(std::span<const Tensor> tensors) {
  const Tensor result = Tensor::empty({1}, DType::f64);
  squared_norm({tensors, result});
  return *result.data<double>();
}

struct Clip {
  float norm, scale;
};

Clip clip(double squared, float max_norm) {
  const Tensor norm = Tensor::empty({1}, DType::f32), scale = Tensor::empty({1}, DType::f32);
  clip_scale({Tensor::from_values<double>({1}, std::array{squared}), max_norm, norm, scale});
  return {*norm.data<float>(), *scale.data<float>()};
}

TEST(SquaredNorm, SumsInDoublePrecision) {
  Generator random(1);
  std::vector<Tensor> tensors;
  long double expected = 0;
  for (const std::int64_t n : {1, 0, 15, 16384, 16385, 100000}) {
    tensors.push_back(random.normal({n}, n % 2 == 0 ? DType::f32 : DType::bf16));
    for (const double x : values(tensors.back())) expected += static_cast<long double>(x) * x;
  }
  EXPECT_NEAR(run(tensors), static_cast<double>(expected), 1e-13 * static_cast<double>(expected));
}

TEST(SquaredNorm, LargeValuesDoNotOverflow) {
  const Tensor x = Tensor::empty({100}, DType::f32);
  fill(x, 1e30);
  EXPECT_NEAR(run(std::array{x}), 1e62, 1e55);
  EXPECT_EQ(run({}), 0.0);
}

TEST(SquaredNorm, BitsDoNotDependOnTheThreadCount) {
  Generator random(2);
  const std::vector<Tensor> tensors = {random.normal({70001}, DType::f32), random.normal({333, 300}, DType::bf16)};
  const Tensor result = Tensor::empty({1}, DType::f64);
  EXPECT_TRUE(independent_of_threads({result}, [&] { squared_norm({tensors, result}); }));
}

TEST(ClipScale, ClipsOnlyAboveTheLimit) {
  EXPECT_FLOAT_EQ(clip(16.0, 1.0f).norm, 4.0f);
  EXPECT_FLOAT_EQ(clip(16.0, 1.0f).scale, 1.0f / (4.0f + 1e-6f));
  EXPECT_EQ(clip(0.25, 1.0f).scale, 1.0f);
  EXPECT_EQ(clip(0.0, 1.0f).scale, 1.0f);
  EXPECT_EQ(clip(16.0, 0.0f).scale, 1.0f);  // 0 and below: no clipping
  EXPECT_EQ(clip(16.0, -1.0f).scale, 1.0f);
}

TEST(ClipScale, NonFiniteNormsGiveNaN) {
  EXPECT_TRUE(std::isnan(clip(INFINITY, 1.0f).scale));
  EXPECT_TRUE(std::isnan(clip(NAN, 1.0f).scale));
  EXPECT_TRUE(std::isnan(clip(INFINITY, 0.0f).scale));
  EXPECT_TRUE(std::isnan(clip(1e100, 1.0f).scale));  // the norm is not finite in f32
  EXPECT_EQ(clip(INFINITY, 1.0f).norm, INFINITY);
}

TEST(SquaredNorm, NaNInIsNaNOut) {
  const Tensor x = Tensor::zeros({50}, DType::bf16);
  x.data<bfloat16>()[49] = bfloat16(NAN);
  EXPECT_TRUE(std::isnan(run(std::array{x})));
  x.data<bfloat16>()[49] = bfloat16(-INFINITY);
  EXPECT_EQ(run(std::array{x}), INFINITY);
}

TEST(SquaredNorm, RejectsOtherDtypes) {
  EXPECT_THROW(run(std::array{Tensor::zeros({3}, DType::f16)}), Error);
  EXPECT_THROW(run(std::array{Tensor::zeros({3, 4}, DType::f32).transpose(0, 1)}), Error);
  EXPECT_THROW(squared_norm({{}, Tensor::zeros({1}, DType::f32)}), Error);
}

}  // namespace
}  // namespace quench
