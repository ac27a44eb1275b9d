#include "core/ops/argmax.h"

#include "tests/core/ops/argmax_cases.h"
#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

struct Found {
  Tensor index, first_nonfinite;
};

Found found_in(const Tensor& x) {
  const std::int64_t rows = x.size(0);
  const Found found{Tensor::empty({rows}, DType::i32, x.device()), Tensor::empty({rows}, DType::i32, x.device())};
  argmax({.x = x, .index = found.index, .first_nonfinite = found.first_nonfinite});
  return {on_cpu(found.index), on_cpu(found.first_nonfinite)};
}

TEST(CudaArgmax, KnowsNanInfinitiesAndEqualElements) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const ArgmaxCase& c : argmax_cases()) {
      const Found found = found_in(on_gpu(argmax_row(c, dtype)));
      EXPECT_EQ(*found.index.data<std::int32_t>(), c.index) << c.name;
      EXPECT_EQ(*found.first_nonfinite.data<std::int32_t>(), c.first_nonfinite) << c.name;
    }
}

TEST(CudaArgmax, TakesMoreRowsThanASecondGridDimensionHas) {
  const std::int64_t rows = 70'001;
  const Tensor x = Generator(2).normal({rows, 3}, DType::f32);
  const Tensor index = Tensor::empty({rows}, DType::i32), nonfinite = Tensor::empty({rows}, DType::i32);
  argmax({.x = x, .index = index, .first_nonfinite = nonfinite});
  EXPECT_TRUE(same_bits(found_in(on_gpu(x)).index, index));
}

TEST(CudaArgmax, MatchesTheCpuOnRandomRows) {
  Generator random(1);
  for (int trial = 0; trial < 60; ++trial) {
    const DType dtype = random.coin() ? DType::f32 : DType::bf16;
    const std::int64_t rows = random.between(1, 5), columns = random.between(1, trial % 3 == 0 ? 130000 : 3000);
    const Tensor x = random.normal({rows, columns}, dtype);  // in bf16 with many equal elements
    if (random.coin())
      set_element(x, random.below(x.numel()), random.coin() ? std::nan("") : -std::numeric_limits<double>::infinity());
    const Tensor index = Tensor::empty({rows}, DType::i32), nonfinite = Tensor::empty({rows}, DType::i32);
    argmax({.x = x, .index = index, .first_nonfinite = nonfinite});
    const Found found = found_in(on_gpu(x));
    EXPECT_TRUE(same_bits(found.index, index)) << x.describe();
    EXPECT_TRUE(same_bits(found.first_nonfinite, nonfinite)) << x.describe();
  }
}

TEST(CudaArgmax, TakesRowsThatAreNotAligned) {
  Generator random(2);
  const Tensor whole = random.normal({1, 4001}, DType::f32);
  const Tensor x = whole.strided({1, 4000}, {4000, 1}, 1);
  const Tensor index = Tensor::empty({1}, DType::i32);
  argmax({.x = x, .index = index});
  EXPECT_TRUE(same_bits(found_in(on_gpu(x)).index, index));
}

}  // namespace
}  // namespace quench::testing
