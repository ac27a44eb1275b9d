// Casts to low precision and the maxima that their scales need.

#include <functional>
#include <string_view>
#include <utility>

#include "bench/cuda/measure.h"
#include "bench/cuda/rates.h"
#include "core/ops/quantize/quantize.h"

namespace quench::bench {
namespace {

// bf16: activations and gradients of 16384 tokens, and a weight.
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
  // As a step has it: the maxima begin at 0.
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

}  // namespace

void measure_casts() {
  for (const auto& [rows, columns] : kShapes) measure_float8(rows, columns);
  for (const std::int64_t columns : {4096, 14336}) measure_blocks(16384, columns);
}

}  // namespace quench::bench
