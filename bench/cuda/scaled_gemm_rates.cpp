// float8 GEMMs compared with bf16: TFLOP/s with autotuned algorithms.

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <functional>

#include "bench/cuda/measure.h"
#include "core/cuda/common/cuda_error.h"
#include "core/ops/gemm.h"
#include "core/ops/quantize/quantize.h"
#include "core/ops/scaled_gemm.h"

namespace quench::bench {
namespace {

void require(cudaError_t status) {
  cuda::check(status, "measurement", kGpu);
}

// Random values: zeros draw less power, and a large GPU is power-limited.
Tensor random_on_gpu(const Shape& shape) {
  static const Tensor block = on_gpu(Generator(1).normal({(std::int64_t{1} << 20) + 7}, DType::bf16));
  const Tensor result = Tensor::empty({shape.numel()}, DType::bf16, kGpu);
  for (std::int64_t done = 0; done < shape.numel(); done += block.numel()) {
    const std::int64_t count = std::min(block.numel(), shape.numel() - done);
    result.narrow(0, done, count).copy_from(block.narrow(0, 0, count));
  }
  return result.view(shape);
}

class Clock {
 public:
  Clock() {
    require(cudaEventCreate(&begin_));
    require(cudaEventCreate(&end_));
  }
  ~Clock() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  // Median over batches of seconds per call, after enough calls to finish autotuning.
  [[nodiscard]] double seconds(const std::function<void()>& call) const {
    constexpr int kContest = 16, kBatches = 7, kCalls = 12;
    for (int i = 0; i < kContest; ++i) (void)batch(call, 16);
    std::array<float, kBatches> times{};
    for (float& time : times) time = batch(call, kCalls);
    std::nth_element(times.begin(), times.begin() + kBatches / 2, times.end());
    return 1e-3 * static_cast<double>(times[kBatches / 2]) / kCalls;
  }

 private:
  [[nodiscard]] float batch(const std::function<void()>& call, int calls) const {
    auto* stream = cuda::native(current_stream(kGpu));
    require(cudaEventRecord(begin_, stream));
    for (int i = 0; i < calls; ++i) call();
    require(cudaEventRecord(end_, stream));
    require(cudaEventSynchronize(end_));
    float ms = 0;
    require(cudaEventElapsedTime(&ms, begin_, end_));
    return ms;
  }

  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// GEMM of a linear layer: transposed operands in bf16, and e5m2 gradients under tensorwise scaling.
enum class Role { forward, dgrad, wgrad };

struct Product {
  std::string name;
  std::int64_t m, n, k;
  Role role = Role::forward;
  DType result = DType::bf16;
  float beta = 0.0f;
};

double bf16_seconds(const Clock& clock, const Product& p, const Tensor& c) {
  const bool ta = p.role == Role::wgrad, tb = p.role == Role::forward;
  const GemmArgs args{.a = random_on_gpu(ta ? Shape{p.k, p.m} : Shape{p.m, p.k}),
                      .b = random_on_gpu(tb ? Shape{p.n, p.k} : Shape{p.k, p.n}),
                      .c = c,
                      .transpose_a = ta,
                      .transpose_b = tb,
                      .beta = p.beta};
  return clock.seconds([&] { gemm(args); });
}

double float8_seconds(const Clock& clock, const Product& p, const Tensor& c, Granularity granularity, bool fast) {
  const bool gradient = p.role != Role::forward && granularity == Granularity::tensor;
  const auto operand = [&](std::int64_t rows, ElementFormat element) {
    return quantize_float8(
        random_on_gpu({rows, p.k}),
        {.element = element, .granularity = granularity, .power_of_two_scale = granularity == Granularity::row});
  };
  const ScaledGemmArgs args{.a = operand(p.m, gradient ? ElementFormat::e5m2 : ElementFormat::e4m3),
                            .b = operand(p.n, ElementFormat::e4m3),
                            .c = c,
                            .beta = p.beta,
                            .fast_accumulation = fast};
  return clock.seconds([&] { gemm(args); });
}

void measure(const Clock& clock, const Product& p) {
  const Tensor c = Tensor::zeros({p.m, p.n}, p.result, kGpu);
  const double tera = 2e-12 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  fmt::print("{:<24}{:>6} x{:>6} x{:>6} {:>7} {:>8.0f}", p.name, p.m, p.n, p.k,
             fmt::format("{}{}", to_string(p.result), p.beta != 0.0f ? " +=" : ""), tera / bf16_seconds(clock, p, c));
  for (const Granularity granularity : {Granularity::tensor, Granularity::row})
    for (const bool fast : {true, false})
      fmt::print(" {:>8.0f}", tera / float8_seconds(clock, p, c, granularity, fast));
  fmt::print("\n");
}

}  // namespace

void measure_float8_products() {
  const GemmTuning tuning;
  const Clock clock;
  fmt::print("\nTFLOP/s of GEMMs; float8 with the reciprocals of its scales\n{:<46} {:>7} {:>8} {:>17} {:>17}\n",
             "M x N x K", "result", "bf16", "tensor fast, not", "row fast, not");
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{8192, 8192, 8192},
                                {16384, 4096, 4096},
                                {16384, 14336, 4096},
                                {16384, 4096, 14336},
                                {8192, 8192, 2048},
                                {16384, 28672, 4096}})
    measure(clock, {"square and wide", m, n, k});
  // Linears of Llama-3.1-8B, with fused qkv and fused gate/up.
  constexpr std::int64_t kTokens = 16384;
  struct Linear {
    std::string_view name;
    std::int64_t in, out;
  };
  for (const auto& [name, in, out] : {Linear{"qkv", 4096, 6144}, Linear{"o", 4096, 4096},
                                      Linear{"gate_up", 4096, 28672}, Linear{"down", 14336, 4096}}) {
    measure(clock, {fmt::format("{} forward", name), kTokens, out, in, Role::forward});
    measure(clock, {fmt::format("{} dgrad", name), kTokens, in, out, Role::dgrad});
    measure(clock, {fmt::format("{} wgrad", name), out, in, kTokens, Role::wgrad});
    measure(clock, {fmt::format("{} wgrad", name), out, in, kTokens, Role::wgrad, DType::bf16, 1.0f});
    measure(clock, {fmt::format("{} wgrad", name), out, in, kTokens, Role::wgrad, DType::f32, 1.0f});
  }
}

}  // namespace quench::bench
