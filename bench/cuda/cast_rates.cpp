// Quantization casts and amax reductions.

#include <functional>
#include <string_view>
#include <utility>

#include "bench/cuda/measure.h"
#include "bench/cuda/rates.h"
#include "core/ops/quantize/fake_quantize_float8.h"
#include "core/ops/quantize/quantize.h"
#include "core/ops/quantize/quantize_int.h"
#include "core/ops/quantize/round_gguf.h"
#include "core/ops/quantize/round_mx.h"
#include "core/ops/quantize/round_nvfp4.h"
#include "core/ops/quantize/scale_gradient.h"
#include "core/ops/quantize/sparsity_2_4.h"

namespace quench::bench {
namespace {

// bf16 shapes: activations and gradients of 16384 tokens, and a weight.
constexpr std::pair<std::int64_t, std::int64_t> kShapes[] = {
    {16384, 4096}, {16384, 6144}, {16384, 14336}, {16384, 28672}, {28672, 4096}};

void measure_float8(std::int64_t rows, std::int64_t columns) {
  const std::int64_t n = rows * columns;
  const Tensor x = random_on_gpu({rows, columns}, DType::bf16, 1.0);
  const auto line = [&](std::string_view what, std::int64_t bytes, const std::function<void()>& body) {
    report_rate(fmt::format("{} [{}, {}]", what, rows, columns), bytes, body);
  };
  constexpr ElementFormat kElement = ElementFormat::e4m3;
  const auto scale_of = [&](Granularity granularity) { return float8_scale(amax(x, granularity), kElement, false); };
  const Tensor of_tensor = scale_of(Granularity::tensor), of_rows = scale_of(Granularity::row),
               of_columns = scale_of(Granularity::column);
  line("amax of the tensor", 2 * n, [&] { (void)amax(x, Granularity::tensor); });
  line("amax of rows", 2 * n, [&] { (void)amax(x, Granularity::row); });
  line("amax of columns", 2 * n, [&] { (void)amax(x, Granularity::column); });
  line("float8, given scale", 3 * n, [&] { (void)cast_float8(x, of_tensor, kElement, Granularity::tensor); });
  line("float8, given scales of rows", 3 * n, [&] { (void)cast_float8(x, of_rows, kElement, Granularity::row); });
  line("float8, given scales of columns", 3 * n,
       [&] { (void)cast_float8(x, of_columns, kElement, Granularity::column); });
  line("float8 pair, given scale", 4 * n, [&] { (void)cast_float8_pair(x, of_tensor, kElement); });
  line("float8 transposed, given scale", 3 * n,
       [&] { (void)cast_float8(x, of_tensor, kElement, Granularity::tensor, Orientation::transposed); });
  line("float8 transposed, given scales of columns", 3 * n,
       [&] { (void)cast_float8(x, of_columns, kElement, Granularity::column, Orientation::transposed); });
  line("float8 by row", 3 * n, [&] { (void)quantize_float8_rows(x, kElement, false, Tensor()); });
  // As in a training step: amax is zeroed first.
  const Tensor most = Tensor::zeros({1, columns}, DType::f32, kGpu);
  line("float8 by row, and amax of columns", 3 * n, [&] {
    Tensor(most).zero();
    (void)quantize_float8_rows(x, kElement, false, most);
  });
  const Float8Rounding stochastic{RandomKey{1, 2, 3}};
  line("float8 pair, given scale, stochastic", 4 * n,
       [&] { (void)cast_float8_pair(x, of_tensor, kElement, stochastic); });
  line("float8 transposed, given scales of columns, stochastic", 3 * n,
       [&] { (void)cast_float8(x, of_columns, kElement, Granularity::column, Orientation::transposed, stochastic); });
  line("float8 by row, stochastic", 3 * n,
       [&] { (void)quantize_float8_rows(x, kElement, false, Tensor(), stochastic); });
}

void measure_blocks(std::int64_t rows, std::int64_t columns) {
  const std::int64_t n = rows * columns;
  const Tensor x = random_on_gpu({rows, columns}, DType::bf16, 1.0);
  const auto name = [&](std::string_view what) { return fmt::format("{} [{}, {}]", what, rows, columns); };
  report_rate(name("mx e4m3"), 3 * n + n / 32, [&] { (void)quantize_mx(x, {}); });
  report_rate(name("mx e4m3 transposed"), 3 * n + n / 32,
              [&] { (void)quantize_mx(x, {.orientation = Orientation::transposed}); });
  report_rate(name("mx e2m1"), 2 * n + n / 2 + n / 32, [&] { (void)quantize_mx(x, {.element = ElementFormat::e2m1}); });
  report_rate(name("nvfp4"), 2 * n + n / 2 + n / 16, [&] { (void)quantize_nvfp4(x); });
}

// QAT for GGUF files: search for codes and scales of bf16 weights.
void measure_gguf_grids(std::int64_t rows, std::int64_t columns) {
  const Tensor x = random_on_gpu({rows, columns}, DType::bf16, 1.0), out = Tensor::empty_like(x);
  for (const BlockFormat& format : block_formats())
    if (can_round_gguf(format.type, DeviceType::cuda))
      report_rate(fmt::format("grid of {} [{}, {}]", format.name, rows, columns), 4 * rows * columns,
                  [&] { round_gguf({.x = x, .type = format.type, .out = out}); });
}

// QAT fake quantization: bf16 activations by token and weights in groups, with a mask bit per element for the gradient.
void measure_fake_integers(std::int64_t rows, std::int64_t columns) {
  const std::int64_t n = rows * columns;
  const Tensor x = random_on_gpu({rows, columns}, DType::bf16, 1.0), out = Tensor::empty_like(x);
  const Tensor mask = Tensor::empty(range_mask_shape(x.shape()), DType::u8, kGpu);
  const auto name = [&](std::string_view what) { return fmt::format("{} [{}, {}]", what, rows, columns); };
  const IntQuantOptions token{.bits = 8, .mapping = IntMapping::asymmetric}, group{.bits = 4, .group_size = 32};
  report_rate(name("fake int8 by token, with mask"), 4 * n + n / 8, [&] {
    fake_quantize_int({x, out, mask, {}, {}, token});
  });
  report_rate(name("fake int8 by token"), 4 * n, [&] { fake_quantize_int({x, out, {}, {}, {}, token}); });
  report_rate(name("zeros where its mask has them"), n / 8, [&] { zero_masked({out, mask}); });
  report_rate(name("fake int4 in groups of 32, with mask"), 4 * n + n / 8, [&] {
    fake_quantize_int({x, out, mask, {}, {}, group});
  });
  report_rate(name("fake int4 in groups of 32"), 4 * n, [&] { fake_quantize_int({x, out, {}, {}, {}, group}); });
  // Mask with a 0 in every other group.
  report_rate(name("zeros where the mask of groups has them"), n / 8, [&] { zero_masked({out, mask}); });
  const IntQuantized codes = quantize_int(x, group);
  const Tensor& scales = codes.scales.scales;
  report_rate(name("fake int4 in groups of 32, given scales"), 4 * n + n / 8, [&] {
    fake_quantize_int({x, out, {}, scales, {}, group});
  });
  const Tensor gradient = Tensor::empty_like(scales);
  report_rate(name("gradients of the scales of groups of 32"), 4 * n + n / 4, [&] {
    scale_gradient({.w = x, .dvalue = out, .scales = scales, .out = gradient, .options = group, .factor = 1.0f});
  });
  report_rate(name("int4 scales of groups of 32"), 2 * n + n / 8, [&] { (void)int_scales(x, group); });
  report_rate(name("int4 codes of groups of 32"), 3 * n + n / 8, [&] { (void)cast_int(x, codes.scales, group); });
  report_rate(name("int4 values of groups of 32"), 3 * n + n / 8,
              [&] { (void)dequantize_int(codes.codes, codes.scales, DType::bf16, group); });
}

// QAT fake quantization of the other formats.
void measure_fake_floats(std::int64_t rows, std::int64_t columns) {
  const std::int64_t n = rows * columns;
  const Tensor x = random_on_gpu({rows, columns}, DType::bf16, 1.0), out = Tensor::empty_like(x);
  const auto name = [&](std::string_view what) { return fmt::format("{} [{}, {}]", what, rows, columns); };
  report_rate(name("fake float8 by row"), 4 * n, [&] { fake_quantize_float8({x, {}, out, DType::bf16}); });
  report_rate(name("2:4"), 4 * n, [&] { prune_2_4({.x = x, .out = out}); });
  report_rate(name("fake mxfp4"), 4 * n, [&] { round_mx({.x = x, .out = out, .element = ElementFormat::e2m1}); });
  const Tensor global = nvfp4_global_scale(amax(x, Granularity::tensor));
  report_rate(name("fake nvfp4, given scale"), 4 * n,
              [&] { round_nvfp4({.x = x, .global_scale = global, .out = out}); });
}

}  // namespace

void measure_casts() {
  measure_gguf_grids(14336, 4096);
  for (const std::int64_t columns : {2048, 8192, 14336, 28672}) measure_fake_integers(16384, columns);
  for (const std::int64_t columns : {2048, 8192}) measure_fake_floats(16384, columns);
  for (const auto& [rows, columns] : kShapes) measure_float8(rows, columns);
  for (const std::int64_t columns : {4096, 14336}) measure_blocks(16384, columns);
}

}  // namespace quench::bench
