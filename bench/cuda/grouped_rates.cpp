// Grouped products of bf16: TFLOP/s of the forward product and of both gradients, with groups of uneven sizes.

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <functional>

#include "bench/cuda/measure.h"
#include "bench/cuda/rates.h"
#include "core/cuda/common/cuda_error.h"
#include "core/ops/experts/grouped_gemm.h"

namespace quench::bench {
namespace {

// Median of batches of calls, after some to warm up.
double seconds_of(const std::function<void()>& call) {
  constexpr int kBatches = 7, kCalls = 8;
  const auto require = [](cudaError_t status) { cuda::check(status, "measurement", kGpu); };
  cudaEvent_t begin = nullptr, end = nullptr;
  require(cudaEventCreate(&begin));
  require(cudaEventCreate(&end));
  auto* stream = cuda::native(current_stream(kGpu));
  std::array<float, kBatches> times{};
  for (int batch = -1; batch < kBatches; ++batch) {
    require(cudaEventRecord(begin, stream));
    for (int i = 0; i < kCalls; ++i) call();
    require(cudaEventRecord(end, stream));
    require(cudaEventSynchronize(end));
    float ms = 0;
    require(cudaEventElapsedTime(&ms, begin, end));
    if (batch >= 0) times[static_cast<std::size_t>(batch)] = ms;
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::nth_element(times.begin(), times.begin() + kBatches / 2, times.end());
  return 1e-3 * static_cast<double>(times[kBatches / 2]) / kCalls;
}

// Ends of groups whose sizes differ by up to half the mean, multiples of 16.
Tensor uneven_ends(std::int64_t rows, std::int64_t groups) {
  Generator random(5);
  std::vector<std::int32_t> ends;
  const std::int64_t mean = rows / groups;
  for (std::int64_t e = 1; e < groups; ++e)
    ends.push_back(static_cast<std::int32_t>((e * mean + random.below(mean / 2) - mean / 4) / 16 * 16));
  ends.push_back(static_cast<std::int32_t>(rows / 16 * 16));
  return on_gpu(Tensor::from_values<std::int32_t>({groups}, ends));
}

void measure(std::int64_t rows, std::int64_t n, std::int64_t k, std::int64_t groups) {
  const Tensor x = random_on_gpu({rows, k}, DType::bf16, 1.0), w = random_on_gpu({groups, n, k}, DType::bf16, 0.02);
  const Tensor dy = random_on_gpu({rows, n}, DType::bf16, 1.0), y = Tensor::empty({rows, n}, DType::bf16, kGpu);
  const Tensor dx = Tensor::empty({rows, k}, DType::bf16, kGpu), dw = Tensor::empty({groups, n, k}, DType::bf16, kGpu);
  const Tensor ends = uneven_ends(rows, groups);
  const double forward = seconds_of([&] { grouped_gemm({x, w, ends, y, true}); });
  const double dgrad = seconds_of([&] { grouped_gemm({dy, w, ends, dx}); });
  const double wgrad = seconds_of([&] { grouped_wgrad({dy, x, ends, dw, 0.0f, 16}); });
  const double flops = 2e-12 * static_cast<double>(rows) * static_cast<double>(n) * static_cast<double>(k);
  fmt::print("{:>6} {:>6} {:>6} {:>4}   {:>8.0f} {:>8.0f} {:>8.0f}   {:>8.2f} ms {:>6.0f}\n", rows, n, k, groups,
             flops / forward, flops / dgrad, flops / wgrad, 1e3 * (forward + dgrad + wgrad),
             3 * flops / (forward + dgrad + wgrad));
}

}  // namespace

void measure_experts() {
  fmt::print("grouped products, bf16, TFLOP/s\n  rows      n      k    E    forward    dgrad    wgrad          all\n");
  for (const auto& [rows, n, k, groups] : {std::array<std::int64_t, 4>{32768, 8192, 5120, 8},
                                           {32768, 5120, 8192, 8},
                                           {32768, 2048, 7168, 8},
                                           {32768, 7168, 2048, 8},
                                           {65536, 1536, 2048, 64},
                                           {32768, 28672, 4096, 8},
                                           {131072, 1536, 2048, 128}})
    measure(rows, n, k, groups);
}

}  // namespace quench::bench
