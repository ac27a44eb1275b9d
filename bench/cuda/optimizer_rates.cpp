// AdamW, the gradient norm and embeddings.

#include <algorithm>
#include <cmath>

#include "bench/cuda/measure.h"
#include "bench/cuda/rates.h"
#include "core/ops/embedding.h"
#include "core/ops/global_norm.h"
#include "core/ops/optimizer/adamw.h"
#include "core/ops/optimizer/low_bit_adamw.h"

namespace quench::bench {
namespace {

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
  report_rate(name, kParameters * bytes_an_element, [&] {
    adamw({.tensors = tensors, .lr = 1e-4, .step = 100, .stochastic_rounding = stochastic, .seed = 1});
  });
}

// Bytes per element: gradient 2, param read and written 4, moments read and written.
void report_low_bit(std::string_view name, MomentFormat format, double moment_bytes) {
  std::vector<LowBitAdamWTensor> tensors;
  const std::int64_t pieces = 64, rows = kParameters / pieces / 4096, block = moment_block(format);
  const auto moment = [&] {
    return MomentCodes{Tensor::zeros({rows, format == MomentFormat::int4 ? 2048 : 4096},
                                     format == MomentFormat::fp8 ? DType::f8_e4m3 : DType::u8, kGpu),
                       Tensor::zeros({rows, 4096 / block}, DType::f32, kGpu)};
  };
  for (std::int64_t i = 0; i < pieces; ++i)
    tensors.push_back({.param = random_on_gpu({rows, 4096}, DType::bf16, 0.02),
                       .grad = random_on_gpu({rows, 4096}, DType::bf16, 1e-3),
                       .exp_avg = moment(),
                       .exp_avg_sq = moment(),
                       .weight_decay = 0.1});
  report_rate(name, static_cast<std::int64_t>(static_cast<double>(kParameters) * (6 + 4 * moment_bytes)),
              [&] { low_bit_adamw({.tensors = tensors, .format = format, .adamw = {.lr = 1e-4, .step = 100}}); });
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
  report_low_bit("adamw bf16, 8-bit states", MomentFormat::int8, 1);
  report_low_bit("adamw bf16, 4-bit states", MomentFormat::int4, 0.5);
  report_low_bit("adamw bf16, fp8 states", MomentFormat::fp8, 1);
}

void measure_squared_norm() {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 64; ++i) tensors.push_back(random_on_gpu({kParameters / 64}, DType::bf16, 1e-3));
  const Tensor result = Tensor::empty({1}, DType::f64, kGpu);
  report_rate("squared_norm bf16", 2 * kParameters, [&] { squared_norm({.tensors = tensors, .result = result}); });
}

void measure_embedding() {
  const std::int64_t n = 16384, width = 4096, vocab = 128256;
  Generator random(2);
  const Tensor table = random_on_gpu({vocab, width}, DType::bf16, 1.0), x = random_on_gpu({n, width}, DType::bf16, 1.0),
               gradient = Tensor::zeros({vocab, width}, DType::f32, kGpu);
  const std::int64_t row = n * width;
  const auto run = [&](std::string_view kind, const Tensor& host_ids, std::int64_t distinct) {
    const Tensor ids = on_gpu(host_ids);
    report_rate(fmt::format("embedding, {}", kind), 2 * row + 2 * distinct * width,
                [&] { embedding({.table = table, .ids = ids, .out = x}); });
    report_rate(fmt::format("embedding_backward f32, {}", kind), 2 * row + 8 * distinct * width,
                [&] { embedding_backward({.dout = x, .ids = ids, .dtable = gradient}); });
  };
  const auto distinct_of = [](const Tensor& ids) {
    std::vector<std::int32_t> list(ids.data<std::int32_t>(), ids.data<std::int32_t>() + ids.numel());
    std::sort(list.begin(), list.end());
    return static_cast<std::int64_t>(std::unique(list.begin(), list.end()) - list.begin());
  };
  const Tensor uniform = random.integers(n, vocab), natural = Tensor::empty({n}, DType::i32);
  for (std::int64_t i = 0; i < n; ++i) {  // Zipf-distributed ids, as in text
    const double u = static_cast<double>(random.below(1 << 30)) / (1 << 30);
    natural.data<std::int32_t>()[i] = static_cast<std::int32_t>(std::pow(static_cast<double>(vocab), u)) - 1;
  }
  run("uniform ids", uniform, distinct_of(uniform));
  run("ids as in text", natural, distinct_of(natural));
  run("one id", Tensor::zeros({n}, DType::i32), 1);
}

}  // namespace

void measure_optimizer() {
  measure_adamw();
  measure_squared_norm();
  measure_embedding();
}

}  // namespace quench::bench
