#include "bench/cuda/rates.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>

#include "bench/cuda/measure.h"
#include "core/cuda/common/cuda_error.h"

namespace quench::bench {
namespace {

void require(cudaError_t status) {
  cuda::check(status, "measurement", kGpu);
}

// Median over batches of microseconds per call, enqueued back to back: host work overlaps GPU work.
double microseconds(const std::function<void()>& call) {
  constexpr int kCalls = 8;
  auto* stream = static_cast<cudaStream_t>(current_stream(kGpu).handle);
  cudaEvent_t begin = nullptr, end = nullptr;
  require(cudaEventCreate(&begin));
  require(cudaEventCreate(&end));
  for (int i = 0; i < 3; ++i) call();
  std::array<float, 9> times;
  for (float& time : times) {
    require(cudaEventRecord(begin, stream));
    for (int i = 0; i < kCalls; ++i) call();
    require(cudaEventRecord(end, stream));
    require(cudaEventSynchronize(end));
    require(cudaEventElapsedTime(&time, begin, end));
  }
  require(cudaEventDestroy(begin));
  require(cudaEventDestroy(end));
  std::nth_element(times.begin(), times.begin() + 4, times.end());
  return 1e3 * static_cast<double>(times[4]) / kCalls;
}

void print_line(std::string_view name, std::int64_t bytes, double time, double copy) {
  const double rate = static_cast<double>(bytes) / time;
  fmt::print("{:<60}{:>14} bytes {:>9.4f} ms {:>6.2f} TB/s {:>6.1f}% of copy\n", name, bytes, time / 1e3, rate / 1e6,
             100 * rate / copy);
}

// Copy rate of 4 GiB, read plus write, in bytes per microsecond.
double copy_rate() {
  static const double rate = [] {
    const std::int64_t n = std::int64_t{1} << 32;
    const Tensor from = random_on_gpu({n / 2}, DType::bf16, 1.0);
    Tensor to = Tensor::empty_like(from);
    const double time = microseconds([&] { to.copy_from(from); }), bytes = 2 * static_cast<double>(n);
    print_line("device-to-device copy", 2 * n, time, bytes / time);
    return bytes / time;
  }();
  return rate;
}

}  // namespace

Tensor random_on_gpu(const Shape& shape, DType dtype, double scale) {
  Generator random(1);
  const std::int64_t n = shape.numel();
  const Tensor piece = on_gpu(random.normal({std::min<std::int64_t>(n, 1 << 20)}, dtype, scale));
  const Tensor whole = Tensor::empty({n}, dtype, kGpu);
  for (std::int64_t done = 0; done < n; done += piece.numel()) {
    const std::int64_t count = std::min(piece.numel(), n - done);
    whole.narrow(0, done, count).copy_from(piece.narrow(0, 0, count));
  }
  return whole.view(shape);
}

void report_rate(std::string_view name, std::int64_t bytes, const std::function<void()>& call) {
  const double copy = copy_rate();
  print_line(name, bytes, microseconds(call), copy);
}

}  // namespace quench::bench
