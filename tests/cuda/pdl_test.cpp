// Kernels launched with PDL (core/cuda/common/pdl.cuh) see what the preceding kernel wrote.

#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"
#include "core/ops/norm.h"
#include "core/ops/swiglu.h"
#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

constexpr std::int64_t kChainWidth = 2048, kChainTurns = 200;

// What a chain of short kernels leaves, each of which reads what the one before wrote: the weights that the product
// fetches ahead, a row that is rewritten in every turn.
Tensor run_chain(const Tensor& sources, const Tensor& weights, bool wait_for_each) {
  Backend& gpu = backend(DeviceType::cuda);
  const auto done = [&] {
    if (wait_for_each) gpu.synchronize(current_stream(kGpu));
  };
  const auto like = [](std::int64_t rows, std::int64_t columns) {
    return Tensor::zeros({rows, columns}, DType::bf16, kGpu);
  };
  const Tensor x = sources.narrow(0, 0, 1).clone(), results = like(kChainTurns, kChainWidth),
               w = like(2 * kChainWidth, kChainWidth);
  const Tensor gate_up = like(1, 2 * kChainWidth), inner = like(1, kChainWidth), sum = like(1, kChainWidth);
  const Tensor rstd = Tensor::zeros({1}, DType::f32, kGpu);
  const Tensor gain = Tensor::zeros({kChainWidth}, DType::bf16, kGpu);
  for (std::int64_t turn = 0; turn < kChainTurns; ++turn) {
    copy_rows({weights.narrow(0, turn % 3 * kChainWidth, 2 * kChainWidth), w});
    done();
    gemm({.a = x, .b = w, .c = gate_up, .transpose_b = true});
    done();
    swiglu({gate_up, inner});
    done();
    copy_rows({sources.narrow(0, turn % sources.size(0), 1), gain.view({1, kChainWidth})});
    done();
    rms_norm(
        {.x = inner, .residual = sources.narrow(0, turn % 5, 1), .weight = gain, .y = x, .sum = sum, .rstd = rstd});
    done();
    copy_rows({x, results.narrow(0, turn, 1)});
    done();
  }
  return on_cpu(results);
}

TEST(CudaEarlyStart, KernelsSeeWhatTheOneBeforeWrote) {
  Generator random(1);
  const Tensor sources = on_gpu(random.normal({7, kChainWidth}, DType::bf16));
  const Tensor weights = on_gpu(random.normal({4 * kChainWidth, kChainWidth}, DType::bf16, 0.02));
  const Tensor expected = run_chain(sources, weights, true);
  EXPECT_GT(std::abs(get_element(expected, expected.numel() - 1)), 0.0);
  for (int trial = 0; trial < 5; ++trial) EXPECT_TRUE(same_bits(run_chain(sources, weights, false), expected));
}

}  // namespace
}  // namespace quench::testing
