// Grouped GEMMs: TFLOP/s of forward, dgrad and wgrad with uneven groups; float8 with operand casts.

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <functional>

#include "bench/cuda/measure.h"
#include "bench/cuda/rates.h"
#include "core/cuda/common/cuda_error.h"
#include "core/ops/experts/block_float8_gemm.h"
#include "core/ops/experts/grouped_float8.h"
#include "core/ops/experts/grouped_gemm.h"
#include "core/ops/experts/round_rows_mx.h"
#include "core/ops/quantize/quantize.h"
#include "core/ops/quantize/round_mx.h"

namespace quench::bench {
namespace {

// Median over batches, after warm-up.
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

// Group ends, multiples of 128 (valid for every format); sizes vary by up to half the mean.
Tensor uneven_ends(std::int64_t rows, std::int64_t groups) {
  Generator random(5);
  std::vector<std::int32_t> ends;
  const std::int64_t mean = rows / groups;
  for (std::int64_t e = 1; e < groups; ++e)
    ends.push_back(static_cast<std::int32_t>((e * mean + random.below(mean / 2) - mean / 4) / 128 * 128));
  ends.push_back(static_cast<std::int32_t>(rows / 128 * 128));
  return on_gpu(Tensor::from_values<std::int32_t>({groups}, ends));
}

struct Case {
  std::int64_t rows, n, k, groups;
  Tensor x = random_on_gpu({rows, k}, DType::bf16, 1.0), w = random_on_gpu({groups, n, k}, DType::bf16, 0.02);
  Tensor dy = random_on_gpu({rows, n}, DType::bf16, 1.0), y = Tensor::empty({rows, n}, DType::bf16, kGpu);
  Tensor dx = Tensor::empty({rows, k}, DType::bf16, kGpu), dw = Tensor::empty({groups, n, k}, DType::bf16, kGpu);
  Tensor ends = uneven_ends(rows, groups);

  [[nodiscard]] double teraflops() const {
    return 2e-12 * static_cast<double>(rows) * static_cast<double>(n) * static_cast<double>(k);
  }
  void print(std::string_view name, double forward, double dgrad, double wgrad, double casts) const {
    const double all = forward + dgrad + wgrad + casts, flops = teraflops();
    fmt::print("{:<12} {:>6} {:>6} {:>6} {:>4}   {:>8.0f} {:>8.0f} {:>8.0f} {:>7.2f} ms   {:>8.2f} ms {:>6.0f}\n", name,
               rows, n, k, groups, flops / forward, flops / dgrad, flops / wgrad, 1e3 * casts, 1e3 * all,
               3 * flops / all);
    std::fflush(stdout);
  }
};

// A cast that moves `bytes`.
void print_rate(std::string_view name, double bytes, const std::function<void()>& call) {
  const double seconds = seconds_of(call);
  fmt::print("    {:<24} {:>7.3f} ms {:>6.2f} TB/s\n", name, 1e3 * seconds, 1e-12 * bytes / seconds);
}

void measure_bf16(const Case& c) {
  const double forward = seconds_of([&] { grouped_gemm(GroupedGemmArgs{c.x, c.w, c.ends, c.y, true}); });
  const double dgrad = seconds_of([&] { grouped_gemm(GroupedGemmArgs{c.dy, c.w, c.ends, c.dx}); });
  const double wgrad = seconds_of([&] { grouped_wgrad(GroupedWgradArgs{c.dy, c.x, c.ends, c.dw, 0.0f, 32}); });
  c.print("bf16", forward, dgrad, wgrad, 0);
}

// MX emulation: bf16 GEMMs on rounded operands. x and the weights are rounded once per GEMM that reads them, dy once
// for both.
void measure_mx(const Case& c) {
  const GroupRows x{.x = c.x, .ends = c.ends, .pairs = {}}, dy{.x = c.dy, .ends = c.ends, .pairs = {}};
  const Tensor x_form = Tensor::empty_like(c.x), w_form = Tensor::empty_like(c.w);
  const Tensor dy_columns = Tensor::empty_like(c.dy), dy_rows = Tensor::empty_like(c.dy);
  const auto cast_forward = [&] {
    round_rows_mx({.rows = x, .rowwise = x_form, .columnwise = {}});
    round_mx({.x = c.w, .out = w_form, .orientation = Orientation::natural});
  };
  const auto multiply_forward = [&] { grouped_gemm(GroupedGemmArgs{x_form, w_form, c.ends, c.y, true}); };
  const auto cast_wgrad = [&] {
    round_rows_mx({.rows = dy, .rowwise = dy_columns, .columnwise = dy_rows});
    round_rows_mx({.rows = x, .rowwise = {}, .columnwise = x_form});
  };
  const auto multiply_wgrad = [&] { grouped_wgrad(GroupedWgradArgs{dy_rows, x_form, c.ends, c.dw, 0.0f, 32}); };
  const auto cast_dgrad = [&] { round_mx({.x = c.w, .out = w_form, .orientation = Orientation::transposed}); };
  const auto multiply_dgrad = [&] { grouped_gemm(GroupedGemmArgs{dy_columns, w_form, c.ends, c.dx}); };
  cast_forward();
  const double forward = seconds_of(multiply_forward);
  cast_wgrad();
  const double wgrad = seconds_of(multiply_wgrad);
  cast_dgrad();
  const double dgrad = seconds_of(multiply_dgrad);
  const double casts = seconds_of([&] {
    cast_forward();
    cast_wgrad();
    cast_dgrad();
  });
  c.print("mxfp8", forward, dgrad, wgrad, casts);
  // In step order: L2 state and power budget as in training.
  const double in_turn = seconds_of([&] {
    cast_forward();
    multiply_forward();
    cast_wgrad();
    multiply_wgrad();
    cast_dgrad();
    multiply_dgrad();
  });
  const double bf16_in_turn = seconds_of([&] {
    grouped_gemm(GroupedGemmArgs{c.x, c.w, c.ends, c.y, true});
    grouped_wgrad(GroupedWgradArgs{c.dy, c.x, c.ends, c.dw, 0.0f, 32});
    grouped_gemm(GroupedGemmArgs{c.dy, c.w, c.ends, c.dx});
  });
  fmt::print("    in the order of a step: bf16 {:.2f} ms, mxfp8 {:.2f} ms ({:.3f}x)\n", 1e3 * bf16_in_turn,
             1e3 * in_turn, bf16_in_turn / in_turn);
  const auto elements = [](const Tensor& t) { return static_cast<double>(t.numel()); };
  print_rate("dy in both forms", 6 * elements(c.dy),
             [&] { round_rows_mx({.rows = dy, .rowwise = dy_columns, .columnwise = dy_rows}); });
  print_rate("dy along columns", 4 * elements(c.dy),
             [&] { round_rows_mx({.rows = dy, .rowwise = dy_columns, .columnwise = {}}); });
  print_rate("dy along rows", 4 * elements(c.dy),
             [&] { round_rows_mx({.rows = dy, .rowwise = {}, .columnwise = dy_rows}); });
  print_rate("weight along columns", 4 * elements(c.w),
             [&] { round_mx({.x = c.w, .out = w_form, .orientation = Orientation::natural}); });
  print_rate("weight along rows", 4 * elements(c.w),
             [&] { round_mx({.x = c.w, .out = w_form, .orientation = Orientation::transposed}); });
}

// Casts of one training step of a layer: x, weights and dy rowwise with column amax, and columnwise.
void measure_float8(const Case& c) {
  const auto rows = [&](const Tensor& x) { return GroupRows{.x = x, .ends = c.ends, .pairs = {}}; };
  const auto weight_columns = [](const Tensor& x, const Tensor& scales) {
    return cast_float8(x, scales, ElementFormat::e4m3, Granularity::column, Orientation::transposed).transposed_view();
  };
  Tensor x_amax, dy_amax, w_amax;
  QuantTensor x_rows, dy_rows, w_rows, w_columns;
  GroupColumns x_columns, dy_columns;
  const auto cast = [&] {
    x_amax = Tensor::zeros({c.groups, c.k}, DType::f32, kGpu);
    dy_amax = Tensor::zeros({c.groups, c.n}, DType::f32, kGpu);
    w_amax = Tensor::zeros({c.groups, 1, c.k}, DType::f32, kGpu);
    x_rows = quantize_group_rows(rows(c.x), true, x_amax);
    dy_rows = quantize_group_rows(rows(c.dy), true, dy_amax);
    w_rows = quantize_float8_rows(c.w, ElementFormat::e4m3, true, w_amax);
    x_columns = quantize_group_columns(rows(c.x), float8_scale(x_amax, ElementFormat::e4m3, true));
    dy_columns = quantize_group_columns(rows(c.dy), float8_scale(dy_amax, ElementFormat::e4m3, true));
    w_columns = weight_columns(c.w, float8_scale(w_amax, ElementFormat::e4m3, true));
  };
  const double casts = seconds_of(cast);
  for (const bool fast : {true, false}) {
    const double forward = seconds_of([&] { grouped_gemm({x_rows, w_rows, c.ends, c.y, fast}); });
    const double dgrad = seconds_of([&] { grouped_gemm({dy_rows, w_columns, c.ends, c.dx, fast}); });
    const double wgrad = seconds_of([&] { grouped_wgrad({dy_columns, x_columns, c.ends, c.dw, 0.0f, fast}); });
    c.print(fast ? "float8 fast" : "float8", forward, dgrad, wgrad, casts);
  }
  const auto bytes = [](const Tensor& t) { return 3.0 * static_cast<double>(t.numel()); };
  print_rate("dy by row", bytes(c.dy), [&] { dy_rows = quantize_group_rows(rows(c.dy), true, dy_amax); });
  print_rate("dy by column", bytes(c.dy), [&] { dy_columns = quantize_group_columns(rows(c.dy), dy_columns.scales); });
  print_rate("weight by row", bytes(c.w),
             [&] { w_rows = quantize_float8_rows(c.w, ElementFormat::e4m3, true, w_amax); });
  const Tensor w_scales = float8_scale(w_amax, ElementFormat::e4m3, true);
  print_rate("weight by column", bytes(c.w), [&] { w_columns = weight_columns(c.w, w_scales); });
}

// x and dy in both orientations; weight blocks once per GEMM that reads them.
void measure_block_float8(const Case& c) {
  constexpr Orientation kNatural = Orientation::natural, kTransposed = Orientation::transposed;
  BlockFloat8 x, x_columns, dy, dy_columns, w, w_transposed;
  const double casts = seconds_of([&] {
    x = quantize_block_lines(c.x, kNatural);
    x_columns = quantize_block_lines(c.x, kTransposed);
    dy = quantize_block_lines(c.dy, kNatural);
    dy_columns = quantize_block_lines(c.dy, kTransposed);
    w = quantize_block_squares(c.w, kNatural);
    w_transposed = quantize_block_squares(c.w, kTransposed);
  });
  const double forward =
      seconds_of([&] { grouped_gemm(BlockFloat8GemmArgs{.a = x, .b = w, .ends = c.ends, .c = c.y}); });
  const double dgrad =
      seconds_of([&] { grouped_gemm(BlockFloat8GemmArgs{.a = dy, .b = w_transposed, .ends = c.ends, .c = c.dx}); });
  const double wgrad = seconds_of(
      [&] { grouped_wgrad(BlockFloat8WgradArgs{.a = dy_columns, .b = x_columns, .ends = c.ends, .c = c.dw}); });
  c.print("float8 block", forward, dgrad, wgrad, casts);
}

}  // namespace

void measure_experts() {
  fmt::print(
      "grouped GEMMs, TFLOP/s\n{:<12}   rows      n      k    E    forward    dgrad    wgrad      casts          "
      "all\n",
      "");
  for (const auto& [rows, n, k, groups] : {std::array<std::int64_t, 4>{32768, 8192, 5120, 8},
                                           {32768, 5120, 8192, 8},
                                           {32768, 2048, 7168, 8},
                                           {32768, 7168, 2048, 8},
                                           {65536, 1536, 2048, 64},
                                           {32768, 28672, 4096, 8},
                                           {131072, 1536, 2048, 128}}) {
    const Case c{rows, n, k, groups};
    measure_bf16(c);
    measure_mx(c);
    measure_float8(c);
    measure_block_float8(c);
  }
}

}  // namespace quench::bench
