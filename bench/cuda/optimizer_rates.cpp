// AdamW, the gradient norm, embeddings and the casts to low precision.

#include <cuda_runtime.h>

#include <algorithm>
#include <functional>

#include "bench/cuda/measure.h"
#include "core/cuda/cuda_error.h"
#include "core/ops/adamw.h"
#include "core/ops/embedding.h"
#include "core/ops/global_norm.h"
#include "core/ops/quantize.h"

namespace quench::bench {
namespace {

void require(cudaError_t status) {
  cuda::check(status, "measurement", kGpu);
}

// Median microseconds of a call, by events.
double microseconds(const std::function<void()>& body) {
  auto* stream = static_cast<cudaStream_t>(current_stream(kGpu).handle);
  cudaEvent_t begin = nullptr, end = nullptr;
  require(cudaEventCreate(&begin));
  require(cudaEventCreate(&end));
  for (int i = 0; i < 2; ++i) body();
  std::vector<float> times(9);
  for (float& time : times) {
    require(cudaEventRecord(begin, stream));
    body();
    require(cudaEventRecord(end, stream));
    require(cudaEventSynchronize(end));
    require(cudaEventElapsedTime(&time, begin, end));
  }
  require(cudaEventDestroy(begin));
  require(cudaEventDestroy(end));
  std::nth_element(times.begin(), times.begin() + 4, times.end());
  return 1e3 * static_cast<double>(times[4]);
}

// Random bits of ordinary size, made on the GPU by repeating what the CPU made.
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

// Bytes a microsecond, read and written, of a copy of 4 GiB.
double copy_rate() {
  static const double rate = [] {
    const std::int64_t n = std::int64_t{1} << 32;
    const Tensor from = random_on_gpu({n / 2}, DType::bf16, 1.0);
    Tensor to = Tensor::empty_like(from);
    const double time = microseconds([&] { to.copy_from(from); });
    fmt::print("{:<44}{:>14} bytes {:>10.1f} us {:>6.2f} TB/s\n", "device-to-device copy", 2 * n, time,
               2 * static_cast<double>(n) / time / 1e6);
    return 2 * static_cast<double>(n) / time;
  }();
  return rate;
}

void report(std::string_view name, std::int64_t bytes, const std::function<void()>& body) {
  const double rate = copy_rate(), time = microseconds(body);
  fmt::print("{:<44}{:>14} bytes {:>10.1f} us {:>6.1f}% of copy\n", name, bytes, time,
             100 * static_cast<double>(bytes) / time / rate);
}

constexpr std::int64_t kParameters = std::int64_t{1} << 30;

std::vector<AdamWTensor> model(DType state, bool master) {
  std::vector<AdamWTensor> tensors;
  const std::int64_t pieces = 64, n = kParameters / pieces;
  for (std::int64_t i = 0; i < pieces; ++i) {
    AdamWTensor t{.param = random_on_gpu({n}, DType::bf16, 0.02),
                  .grad = random_on_gpu({n}, DType::bf16, 1e-3),
                  .exp_avg = random_on_gpu({n}, state, 1e-3),
                  .exp_avg_sq = Tensor::zeros({n}, state, kGpu),
                  .weight_decay = 0.1,
                  .random_stream = static_cast<std::uint64_t>(i)};
    if (master) t.master = random_on_gpu({n}, DType::f32, 0.02);
    tensors.push_back(t);
  }
  return tensors;
}

void report_adamw(std::string_view name, std::int64_t bytes_an_element, const std::vector<AdamWTensor>& tensors,
                  bool stochastic) {
  report(name, kParameters * bytes_an_element,
         [&] { adamw({.tensors = tensors, .lr = 1e-4, .step = 100, .stochastic_rounding = stochastic, .seed = 1}); });
}

void measure_adamw() {
  {
    const std::vector<AdamWTensor> tensors = model(DType::bf16, false);
    report_adamw("adamw bf16", 14, tensors, false);
    report_adamw("adamw bf16, stochastic rounding", 14, tensors, true);
  }
  report_adamw("adamw bf16, f32 states", 22, model(DType::f32, false), false);
  report_adamw("adamw bf16, f32 states, stochastic rounding", 22, model(DType::f32, false), true);
  report_adamw("adamw bf16, f32 states and master", 28, model(DType::f32, true), false);
}

void measure_squared_norm() {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 64; ++i) tensors.push_back(random_on_gpu({kParameters / 64}, DType::bf16, 1e-3));
  const Tensor result = Tensor::empty({1}, DType::f64, kGpu);
  report("squared_norm bf16", 2 * kParameters, [&] { squared_norm({.tensors = tensors, .result = result}); });
}

void measure_embedding() {
  const std::int64_t n = 16384, width = 4096, vocab = 128256;
  Generator random(2);
  const Tensor table = random_on_gpu({vocab, width}, DType::bf16, 1.0), x = random_on_gpu({n, width}, DType::bf16, 1.0),
               gradient = Tensor::zeros({vocab, width}, DType::f32, kGpu);
  const std::int64_t row = n * width;
  const auto run = [&](std::string_view kind, const Tensor& host_ids, std::int64_t distinct) {
    const Tensor ids = on_gpu(host_ids);
    report(fmt::format("embedding, {}", kind), 2 * row + 2 * distinct * width,
           [&] { embedding({.table = table, .ids = ids, .out = x}); });
    report(fmt::format("embedding_backward f32, {}", kind), 2 * row + 8 * distinct * width,
           [&] { embedding_backward({.dout = x, .ids = ids, .dtable = gradient}); });
  };
  const auto distinct_of = [](const Tensor& ids) {
    std::vector<std::int32_t> list(ids.data<std::int32_t>(), ids.data<std::int32_t>() + ids.numel());
    std::sort(list.begin(), list.end());
    return static_cast<std::int64_t>(std::unique(list.begin(), list.end()) - list.begin());
  };
  const Tensor uniform = random.integers(n, vocab), natural = Tensor::empty({n}, DType::i32);
  for (std::int64_t i = 0; i < n; ++i) {  // Zipf's law, as text has it
    const double u = static_cast<double>(random.below(1 << 30)) / (1 << 30);
    natural.data<std::int32_t>()[i] = static_cast<std::int32_t>(std::pow(static_cast<double>(vocab), u)) - 1;
  }
  run("uniform ids", uniform, distinct_of(uniform));
  run("ids as in text", natural, distinct_of(natural));
  run("one id", Tensor::zeros({n}, DType::i32), 1);
}

void measure_quantize() {
  for (const std::int64_t columns : {4096, 14336}) {
    const std::int64_t n = 16384 * columns;
    const Tensor x = random_on_gpu({16384, columns}, DType::bf16, 1.0);
    const auto name = [&](std::string_view what) { return fmt::format("{} [16384, {}]", what, columns); };
    const Tensor scale = float8_scale(amax(x, Granularity::tensor), ElementFormat::e4m3, false);
    report(name("amax of the tensor"), 2 * n, [&] { (void)amax(x, Granularity::tensor); });
    report(name("amax of columns"), 2 * n, [&] { (void)amax(x, Granularity::column); });
    report(name("float8 with a given scale"), 3 * n,
           [&] { (void)cast_float8(x, scale, ElementFormat::e4m3, Granularity::tensor); });
    report(name("float8 by tensor"), 5 * n, [&] { (void)quantize_float8(x, {}); });
    report(name("float8 by row"), 3 * n, [&] { (void)quantize_float8(x, {.granularity = Granularity::row}); });
    report(name("float8 by column"), 5 * n, [&] { (void)quantize_float8(x, {.granularity = Granularity::column}); });
    report(name("mx e4m3"), 3 * n + n / 32, [&] { (void)quantize_mx(x, {}); });
    report(name("mx e4m3 transposed"), 3 * n + n / 32,
           [&] { (void)quantize_mx(x, {.orientation = Orientation::transposed}); });
    report(name("mx e2m1"), 2 * n + n / 2 + n / 32, [&] { (void)quantize_mx(x, {.element = ElementFormat::e2m1}); });
    report(name("nvfp4"), 2 * n + n / 2 + n / 16, [&] { (void)quantize_nvfp4(x); });
  }
}

}  // namespace

void measure_optimizer_and_casts() {
  measure_adamw();
  measure_squared_norm();
  measure_embedding();
  measure_quantize();
}

}  // namespace quench::bench
