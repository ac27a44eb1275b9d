// Optimizers of the table on a GPU.

#include "nn/optim/table.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/device/determinism.h"
#include "nn/optim/orthogonalize.h"
#include "tests/core/ops/op_testing.h"
#include "tests/cuda_model/gpu_runs.h"

namespace quench::testing {
namespace {

// Products in bf16 round differently: near the CPU's, with singular values as near 1. The last four have tiles of
// their own, and all but one of them run on Gram matrices.
TEST(CudaOptimizers, MuonOrthogonalizesAsOnTheCpu) {
  Generator random(3);
  for (const Shape& shape :
       {Shape{48, 96}, Shape{200, 64}, Shape{512, 512}, Shape{512, 1024}, Shape{1200, 304}, Shape{256, 1024}}) {
    const Tensor x = random.normal(shape, DType::bf16), gpu = x.to(kGpu);
    nn::orthogonalize(x);
    nn::orthogonalize(gpu);
    double difference = 0, norm = 0;
    const std::vector<double> actual = values(gpu.to(Device{})), expected = values(x);
    for (std::size_t i = 0; i < actual.size(); ++i) {
      difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
      norm += expected[i] * expected[i];
    }
    EXPECT_LT(std::sqrt(difference / norm), 0.03);
  }
}

TEST(CudaOptimizers, LossesFollowTheCpu) {
  for (const nn::OptimizerEntry& optimizer : nn::optimizer_table()) {
    SCOPED_TRACE(optimizer.name);
    const TinyRun tiny;
    const std::vector<std::string> options{"--training.dtype=bf16", "--training.steps=15",
                                           "--optimizer.name=" + std::string(optimizer.name)};
    tiny.run(tiny.config("gpu", options), kGpu);
    tiny.run(tiny.config("cpu", options));
    const auto gpu = tiny.losses("gpu"), cpu = tiny.losses("cpu");
    ASSERT_EQ(gpu.size(), cpu.size());
    for (std::size_t i = 0; i < cpu.size(); ++i)
      EXPECT_NEAR(loss_of(gpu[i]), loss_of(cpu[i]), 0.02 * loss_of(cpu[i])) << cpu[i];
  }
}

TEST(CudaOptimizers, ResumeIsExact) {
  for (const nn::OptimizerEntry& optimizer : nn::optimizer_table()) {
    SCOPED_TRACE(optimizer.name);
    expect_exact_resume({"--training.dtype=bf16", "--optimizer.name=" + std::string(optimizer.name)});
  }
}

}  // namespace
}  // namespace quench::testing
