// LoRA GEMMs of a Llama 3.2 1B layer, rank 16, 16,384 tokens: base GEMM, separate update, and fused; updates of many
// adapters in one batch. Alternating runs, all at the GPU's power limit.

#include <cuda_runtime.h>

#include <algorithm>
#include <functional>

#include "bench/cuda/measure.h"
#include "bench/cuda/rates.h"
#include "core/cuda/common/cuda_error.h"
#include "core/ops/adapters/adapter_gradients.h"
#include "core/ops/adapters/low_rank_gemm.h"
#include "core/ops/adapters/row_adapters.h"
#include "core/ops/gemm.h"
#include "core/ops/swiglu.h"

namespace quench::bench {
namespace {

struct Way {
  std::function<void()> call;
  std::vector<double> milliseconds{};
};

void take_turn(Way& way, int calls) {
  const auto require = [](cudaError_t status) { cuda::check(status, "measurement", kGpu); };
  cudaEvent_t begin = nullptr, end = nullptr;
  require(cudaEventCreate(&begin));
  require(cudaEventCreate(&end));
  auto* stream = cuda::native(current_stream(kGpu));
  way.call();
  require(cudaEventRecord(begin, stream));
  for (int i = 0; i < calls; ++i) way.call();
  require(cudaEventRecord(end, stream));
  require(cudaEventSynchronize(end));
  float ms = 0;
  require(cudaEventElapsedTime(&ms, begin, end));
  way.milliseconds.push_back(static_cast<double>(ms) / calls);
  require(cudaEventDestroy(begin));
  require(cudaEventDestroy(end));
}

// Median of the rounds after autotuning.
double median(std::vector<double> times) {
  constexpr int kLast = 7;
  times.erase(times.begin(), times.end() - kLast);
  std::nth_element(times.begin(), times.begin() + kLast / 2, times.end());
  return times[kLast / 2];
}

// `widths`: columns of each projection, each with its own adapter.
void measure_product(std::int64_t n, std::int64_t k, const std::vector<std::int64_t>& widths, bool transpose) {
  constexpr std::int64_t kRows = 16384, kRank = 16;
  constexpr int kTurns = 18;
  const std::int64_t rank = kRank * static_cast<std::int64_t>(widths.size());
  const auto right = [&](std::int64_t columns, std::int64_t depth) {
    return random_on_gpu(transpose ? Shape{columns, depth} : Shape{depth, columns}, DType::bf16, 0.02);
  };
  LowRankGemmArgs args{.a = random_on_gpu({kRows, k}, DType::bf16, 1.0),
                       .b = right(n, k),
                       .u = random_on_gpu({kRows, rank}, DType::bf16, 1.0),
                       .c = Tensor::empty({kRows, n}, DType::bf16, kGpu),
                       .blocks = {},
                       .transpose_b = transpose};
  std::int64_t column = 0;
  if (transpose) {
    for (std::size_t i = 0; i < widths.size(); column += widths[i++])
      args.blocks.push_back({right(widths[i], kRank), column, kRank * static_cast<std::int64_t>(i)});
  } else {
    args.blocks.push_back({right(n, rank)});
  }
  Way ways[]{{[&] { gemm({.a = args.a, .b = args.b, .c = args.c, .transpose_b = transpose}); }},
             {[&] { low_rank_gemm_in_products(args); }},
             {[&] { low_rank_gemm(args); }}};
  const double teraflops = 2e-12 * static_cast<double>(kRows) * static_cast<double>(n) * static_cast<double>(k);
  const int calls = std::max(6, static_cast<int>(10 / teraflops));
  for (int turn = 0; turn < kTurns; ++turn)
    for (Way& way : ways) take_turn(way, calls);
  fmt::print("{:<45}", op_label(args));
  for (const Way& way : ways) {
    const double ms = median(way.milliseconds);
    fmt::print("  {:>7.4f} ms {:>4.0f}", ms, 1e3 * teraflops / ms);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

// Gate and up GEMM followed by SwiGLU, and fused.
void measure_gated(std::int64_t inner, std::int64_t k) {
  constexpr std::int64_t kRows = 16384, kRank = 16;
  constexpr int kTurns = 18;
  const auto random = [](const Shape& shape, double deviation) { return random_on_gpu(shape, DType::bf16, deviation); };
  LowRankGemmArgs args{.a = random({kRows, k}, 1.0),
                       .b = random({2 * inner, k}, 0.02),
                       .u = random({kRows, 2 * kRank}, 1.0),
                       .c = Tensor::empty({kRows, 2 * inner}, DType::bf16, kGpu),
                       .blocks = {{random({inner, kRank}, 0.02), 0, 0}, {random({inner, kRank}, 0.02), inner, kRank}},
                       .transpose_b = true};
  const Tensor out = Tensor::empty({kRows, inner}, DType::bf16, kGpu);
  LowRankGemmArgs gated = args;
  gated.gated = out;
  Way ways[]{{[&] {
               low_rank_gemm(args);
               swiglu({args.c, out});
             }},
             {[&] { low_rank_gemm(gated); }}};
  for (int turn = 0; turn < kTurns; ++turn)
    for (Way& way : ways) take_turn(way, 10);
  fmt::print("{:<45}  {:>7.4f} ms apart  {:>7.4f} ms in one\n", op_label(gated), median(ways[0].milliseconds),
             median(ways[1].milliseconds));
  std::fflush(stdout);
}

// dgrad followed by SwiGLU backward, and fused.
void measure_gradient_of_gates(std::int64_t inner, std::int64_t k) {
  constexpr std::int64_t kRows = 16384, kRank = 16;
  constexpr int kTurns = 18;
  const auto random = [](const Shape& shape, double deviation) { return random_on_gpu(shape, DType::bf16, deviation); };
  LowRankGemmArgs args{.a = random({kRows, k}, 1.0),
                       .b = random({k, inner}, 0.02),
                       .u = random({kRows, kRank}, 1.0),
                       .c = Tensor::empty({kRows, inner}, DType::bf16, kGpu),
                       .blocks = {{random({kRank, inner}, 0.02)}}};
  const Tensor gate_up = random({kRows, 2 * inner}, 1.0), out = Tensor::empty({kRows, 2 * inner}, DType::bf16, kGpu);
  LowRankGemmArgs through = args;
  through.c = Tensor();
  through.gate_up = gate_up;
  through.dgate_up = out;
  Way ways[]{{[&] {
               low_rank_gemm(args);
               swiglu_backward({.dout = args.c, .gate_up = gate_up, .dgate_up = out, .out = {}});
             }},
             {[&] { low_rank_gemm(through); }}};
  for (int turn = 0; turn < kTurns; ++turn)
    for (Way& way : ways) take_turn(way, 10);
  fmt::print("{:<45}  {:>7.4f} ms apart  {:>7.4f} ms in one\n", op_label(through), median(ways[0].milliseconds),
             median(ways[1].milliseconds));
  std::fflush(stdout);
}

// Both adapter gradients of the projections from dY: by gemm() calls, and in one pass.
void measure_gradients(const std::vector<std::int64_t>& widths, std::int64_t rank) {
  constexpr std::int64_t kRows = 16384;
  constexpr int kTurns = 18;
  std::int64_t n = 0;
  for (const std::int64_t width : widths) n += width;
  const std::int64_t ranks = rank * static_cast<std::int64_t>(widths.size());
  AdapterGradientsArgs args{.dy = random_on_gpu({kRows, n}, DType::bf16, 1.0),
                            .hidden = random_on_gpu({kRows, ranks}, DType::bf16, 1.0),
                            .dhidden = Tensor::empty({kRows, ranks}, DType::bf16, kGpu),
                            .pieces = {}};
  std::int64_t column = 0;
  for (std::size_t i = 0; i < widths.size(); column += widths[i++])
    args.pieces.push_back({.b = random_on_gpu({widths[i], rank}, DType::bf16, 0.02),
                           .db = Tensor::empty({widths[i], rank}, DType::bf16, kGpu),
                           .column = column,
                           .rank_begin = rank * static_cast<std::int64_t>(i)});
  Way ways[]{{[&] { adapter_gradients_in_products(args); }}, {[&] { adapter_gradients(args); }}};
  for (int turn = 0; turn < kTurns; ++turn)
    for (Way& way : ways) take_turn(way, 20);
  const double bytes = 2.0 * static_cast<double>(kRows) * static_cast<double>(n);
  fmt::print("{:<45}", op_label(args));
  for (const Way& way : ways) {
    const double ms = median(way.milliseconds);
    fmt::print("  {:>7.4f} ms {:>4.2f}", ms, bytes / ms * 1e-9);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

// The base's GEMM, and what eight adapters in turns of `run` rows add to it.
void measure_row_adapters(std::int64_t m, std::int64_t k, const std::vector<std::int64_t>& widths, std::int64_t run) {
  constexpr std::int64_t kAdapters = 8, kRank = 16;
  constexpr int kTurns = 18;
  const auto random = [](const Shape& shape) { return random_on_gpu(shape, DType::bf16, 0.02); };
  const Tensor rows = Tensor::empty({m}, DType::i32);
  for (std::int64_t i = 0; i < m; ++i) rows.data<std::int32_t>()[i] = static_cast<std::int32_t>(i / run % kAdapters);
  std::vector<RowAdapterPart> parts;
  std::int64_t n = 0, rank = 0;
  for (const std::int64_t width : widths) {
    parts.push_back({random({kAdapters, kRank, width}), n, rank});
    n += width;
    rank += kRank;
  }
  const Tensor weight = random({n, k});
  const RowAdaptersArgs args{.x = random({m, k}),
                             .a = random({kAdapters, rank, k}),
                             .parts = parts,
                             .rows = on_gpu(rows),
                             .y = random({m, n})};
  Way ways[]{{[&] { gemm({.a = args.x, .b = weight, .c = args.y, .transpose_b = true}); }},
             {[&] { row_adapters(args); }}};
  for (int turn = 0; turn < kTurns; ++turn)
    for (Way& way : ways) take_turn(way, 50);
  fmt::print("{:<45}  {:>7.4f} ms of the base  {:>7.4f} ms\n", op_label(args), median(ways[0].milliseconds),
             median(ways[1].milliseconds));
  std::fflush(stdout);
}

}  // namespace

void measure_low_rank() {
  const GemmTuning tuning;
  fmt::print("low-rank updates, TFLOP/s of the GEMM {:>28} {:>17} {:>17}\n", "alone", "update written", "in one");
  measure_product(16384, 2048, {8192, 8192}, true);
  measure_product(2048, 8192, {2048}, true);
  measure_product(3072, 2048, {2048, 512, 512}, true);
  measure_product(2048, 2048, {2048}, true);
  measure_product(2048, 16384, {8192, 8192}, false);
  measure_product(8192, 2048, {2048}, false);
  measure_product(2048, 3072, {2048, 512, 512}, false);
  measure_product(2048, 2048, {2048}, false);
  measure_gated(8192, 2048);
  measure_gated(14336, 4096);
  measure_gradient_of_gates(8192, 2048);
  measure_gradient_of_gates(14336, 4096);
  fmt::print("gradients of adapters, TB/s of the output's gradient {:>14} {:>17}\n", "by GEMMs", "in one pass");
  for (const std::int64_t rank : {8, 16}) {
    measure_gradients({8192, 8192}, rank);
    measure_gradients({2048, 512, 512}, rank);
    measure_gradients({2048}, rank);
  }
  fmt::print("updates of many adapters, rank 16 a projection of an 8B\n");
  for (const std::int64_t m : {1, 16, 64, 2048}) {
    const std::int64_t run = m > 64 ? 256 : 1;
    measure_row_adapters(m, 4096, {4096, 1024, 1024}, run);
    measure_row_adapters(m, 4096, {4096}, run);
    measure_row_adapters(m, 4096, {14336, 14336}, run);
    measure_row_adapters(m, 14336, {4096}, run);
  }
}

}  // namespace quench::bench
