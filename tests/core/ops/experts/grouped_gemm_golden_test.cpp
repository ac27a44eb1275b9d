// Grouped GEMMs against torch._grouped_mm (tests/golden/README.md), within the tolerance of its f32 accumulation:
// one bf16 ulp, or 1e-4 of the tensor's maximum.

#include <cmath>

#include "core/ops/experts/grouped_gemm.h"
#include "tests/core/ops/golden_file.h"
#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

::testing::AssertionResult within_one_ulp(const Tensor& actual, const Tensor& expected) {
  const auto wanted = values(expected);
  double largest = 0;
  for (const double x : wanted) largest = std::max(largest, std::abs(x));
  return close(actual, wanted, 0x1.0p-7, 1e-4 * largest);
}

TEST(GroupedGemmGolden, Bf16) {
  const GoldenFile golden("grouped_gemm.safetensors");
  const Tensor ends = golden.tensor("offs"), a = golden.tensor("bf16.a"), b = golden.tensor("bf16.b");
  const Tensor gy = golden.tensor("bf16.gy");
  const Tensor y = Tensor::empty(gy.shape(), DType::bf16), ga = Tensor::empty(a.shape(), DType::bf16);
  const Tensor gb = Tensor::empty(b.shape(), DType::bf16);
  grouped_gemm({a, b, ends, y, true});
  grouped_gemm({gy, b, ends, ga});
  grouped_wgrad({gy, a, ends, gb});
  EXPECT_TRUE(within_one_ulp(y, golden.tensor("bf16.y")));
  EXPECT_TRUE(within_one_ulp(ga, golden.tensor("bf16.ga")));
  EXPECT_TRUE(within_one_ulp(gb, golden.tensor("bf16.gb")));
}

}  // namespace
}  // namespace quench
