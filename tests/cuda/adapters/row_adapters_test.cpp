#include "tests/core/ops/row_adapters_cases.h"
#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

RowAdaptersArgs args_on_gpu(const RowAdaptersArgs& args) {
  RowAdaptersArgs gpu = args;
  for (Tensor* tensor : {&gpu.x, &gpu.a, &gpu.rows, &gpu.y}) *tensor = on_gpu(*tensor);
  for (RowAdapterPart& part : gpu.parts) part.b = on_gpu(part.b);
  return gpu;
}

TEST(CudaRowAdapters, EveryRowGetsTheUpdateOfItsAdapter) {
  for (const RowAdaptersCase& c : kRowAdaptersCases) {
    const RowAdaptersArgs args = row_adapters_args(c, 1), gpu = args_on_gpu(args);
    SCOPED_TRACE(op_label(args));
    const std::vector<double> expected = row_adapters_result(args), before = values(args.y);
    row_adapters(gpu);
    const std::vector<double> after = values(on_cpu(gpu.y));
    for (std::size_t i = 0; i < after.size(); ++i) {
      ASSERT_NEAR(after[i], expected[i], row_adapters_tolerance(c, expected[i])) << i;
      if (args.rows.data<std::int32_t>()[i / static_cast<std::size_t>(c.n)] < 0) {
        ASSERT_EQ(after[i], before[i]) << i;
      }
    }
  }
}

// One row to a CTA, and tiles of rows.
TEST(CudaRowAdapters, ARowDoesNotDependOnTheOthers) {
  for (const RowAdaptersCase& c : kRowAdaptersCases) {
    const RowAdaptersArgs all = args_on_gpu(row_adapters_args(c, 2)), one = args_on_gpu(row_adapters_args(c, 2));
    SCOPED_TRACE(op_label(all));
    row_adapters(all);
    for (std::int64_t row = 0; row < c.m; ++row)
      row_adapters({.x = one.x.narrow(0, row, 1),
                    .a = one.a,
                    .parts = one.parts,
                    .rows = one.rows.narrow(0, row, 1),
                    .y = one.y.narrow(0, row, 1)});
    EXPECT_EQ(values(on_cpu(all.y)), values(on_cpu(one.y)));
  }
}

}  // namespace
}  // namespace quench::testing
