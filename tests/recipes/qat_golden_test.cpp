// Quantization-aware linear layers against vectors made by TorchAO, with the tolerances of tests/golden/README.md.

#include "recipes/lora/adapters.h"
#include "recipes/qat/qat_linear.h"
#include "recipes/recipe.h"
#include "tests/core/ops/golden_file.h"
#include "tests/recipes/float8_testing.h"

namespace quench::recipes {
namespace {

using testing::GoldenFile;
using testing::LinearCase;
using testing::LinearResult;

struct GoldenCase {
  const char* name;
  const char* recipe;  // null: a scheme that no recipe has
  std::int64_t group_size;
};

// Numerics 12.1: in f32 2e-6 of the tensor's largest value; in bf16 one unit in the last place, or 1e-5 of it.
void expect_close(const Tensor& actual, const Tensor& expected, const char* what) {
  ASSERT_EQ(actual.shape(), expected.shape());
  const bool half = expected.dtype() == DType::bf16;
  const Tensor a = testing::as_f32(actual), e = testing::as_f32(expected);
  double most = 0;
  for (std::int64_t i = 0; i < e.numel(); ++i) most = std::max(most, std::abs(double(e.data<float>()[i])));
  int beyond = 0, misplaced = 0;  // zeros of the mask agree exactly
  for (std::int64_t i = 0; i < e.numel(); ++i) {
    const double x = a.data<float>()[i], y = e.data<float>()[i];
    misplaced += !half && y == 0 && x != 0 ? 1 : 0;
    double ulp = 0;
    if (half && y != 0) ulp = std::ldexp(1.0, std::ilogb(y) - 7);
    beyond += std::abs(x - y) > std::max(half ? 1e-5 * most : 2e-6 * most, ulp * 1.0001) ? 1 : 0;
  }
  EXPECT_EQ(beyond, 0) << what;
  EXPECT_EQ(misplaced, 0) << what;
}

class QatGolden : public ::testing::TestWithParam<std::tuple<GoldenCase, const char*>> {};

TEST_P(QatGolden, ForwardAndGradients) {
  const auto& [golden, dtype] = GetParam();
  const GoldenFile file("qat_linear.safetensors");
  const auto tensor = [&](const char* what) { return file.tensor(fmt::format("{}.{}.{}", golden.name, dtype, what)); };
  const LinearCase c{tensor("x"), tensor("w"), tensor("gy")};
  std::shared_ptr<const nn::LinearKernel> kernel;
  if (golden.recipe != nullptr) {
    kernel = testing::make_kernel(
        golden.recipe, c, {}, {.group_size = golden.group_size > 0 ? std::optional(golden.group_size) : std::nullopt});
  } else {
    const FakeFormat compatible{
        .kind = FakeFormat::Kind::integer,
        .integers = {.bits = 4, .mapping = IntMapping::truncated_zero_point, .group_size = golden.group_size}};
    kernel = std::make_shared<QatLinear>(QatScheme{"compatible", {}, compatible}, false);
  }
  const LinearResult ours = testing::run_linear(*kernel, c, {}, c.w.dtype());
  expect_close(ours.y, tensor("y"), "y");
  expect_close(ours.dx, tensor("gx"), "gx");
  expect_close(ours.dw, tensor("gw"), "gw");
}

INSTANTIATE_TEST_SUITE_P(All, QatGolden,
                         ::testing::Combine(::testing::Values(GoldenCase{"int8dyn_int4g32", "qat_int8dyn_int4", 32},
                                                              GoldenCase{"int4wo_g64", "qat_int4_weight_only", 64},
                                                              GoldenCase{"int8pc", "qat_int8", 0},
                                                              GoldenCase{"int4wo_asym_g32", nullptr, 32}),
                                            ::testing::Values("f32", "bf16")));

}  // namespace
}  // namespace quench::recipes
