#include "core/ops/low_rank_gradients.h"

#include "tests/core/ops/low_rank_gradients_cases.h"
#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

void check_on_gpu(const LowRankCase& c) {
  const LowRankGradientsArgs args = c.args([](const Tensor& t) { return on_gpu(t); });
  low_rank_gradients(args);
  c.check(on_cpu(args.dh), on_cpu(args.db));
}

// Columns and rows that leave blocks and warps without work, one block of columns and several.
TEST(CudaLowRankGradients, AreThoseOfTheUpdate) {
  for (const std::int64_t rank : {16, 32, 64})
    for (const auto& [n, m] : {std::pair{512, 8}, {523, 264}, {1000, 1040}, {2100, 2056}, {1536, 3072}})
      for (const bool adds : {false, true}) {
        SCOPED_TRACE(fmt::format("n {} m {} rank {} adds {}", n, m, rank, adds));
        check_on_gpu({DType::bf16, adds ? DType::f32 : DType::bf16, n, m, rank, adds ? 8 : 0, adds});
      }
}

// What plain products take: few rows, other ranks, dtypes and alignments.
TEST(CudaLowRankGradients, OtherSizesAndDtypes) {
  check_on_gpu({DType::bf16, DType::bf16, 100, 264, 16, 0, false});
  check_on_gpu({DType::bf16, DType::f32, 600, 264, 8, 0, true});
  check_on_gpu({DType::bf16, DType::f32, 600, 264, 16, 3, true});
  check_on_gpu({DType::f32, DType::f32, 600, 264, 16, 0, true});
}

TEST(CudaLowRankGradients, BitsRepeat) {
  const LowRankCase c(DType::bf16, DType::bf16, 4096, 2048, 16, 0, false);
  const auto run = [&] {
    const LowRankGradientsArgs args = c.args([](const Tensor& t) { return on_gpu(t); });
    low_rank_gradients(args);
    return std::pair(values(on_cpu(args.dh)), values(on_cpu(args.db)));
  };
  const auto first = run();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(run(), first);
}

}  // namespace
}  // namespace quench::testing
