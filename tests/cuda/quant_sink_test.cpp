// Sinks that kernels fill on the way against the casts of what the kernels have stored, bit for bit.

#include "core/ops/quant_sink.h"

#include <functional>

#include "core/ops/norm.h"
#include "core/ops/quantize.h"
#include "core/ops/swiglu.h"
#include "tests/cuda/fused_testing.h"

namespace quench::testing {
namespace {

// The bytes of a contiguous tensor on the GPU.
std::vector<std::uint8_t> bytes_of(const Tensor& t) {
  std::vector<std::uint8_t> result(t.nbytes());
  const Stream stream = current_stream(t.device());
  backend(DeviceType::cuda).copy(result.data(), Device{}, t.raw_data(), t.device(), t.nbytes(), stream);
  backend(DeviceType::cuda).synchronize(stream);
  return result;
}

::testing::AssertionResult same(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype())
    return ::testing::AssertionFailure() << a.describe() << " and " << b.describe();
  const std::vector<std::uint8_t> x = bytes_of(a), y = bytes_of(b);
  if (x == y) return ::testing::AssertionSuccess();
  for (std::size_t i = 0; i < x.size(); ++i)
    if (x[i] != y[i])
      return ::testing::AssertionFailure()
             << "byte " << i << " of " << a.describe() << " is " << int{x[i]} << ", not " << int{y[i]};
  return ::testing::AssertionSuccess();
}

// On the GPU, every byte as given: results that are not written differ from one poison to another.
Tensor poison(const Shape& shape, DType dtype, std::uint8_t byte = 0xFF) {
  if (shape.numel() == 0) return Tensor::empty(shape, dtype, kGpu);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(shape.numel() * byte_size(dtype)), byte);
  return Tensor::from_host(bytes.data(), shape, dtype).to(kGpu);
}

// Which parts a sink has.
struct Parts {
  bool amax = false, rows = false, column_amax = false;
  ElementFormat element = ElementFormat::e4m3;
  bool power_of_two = false;
  bool unaligned = false;  // codes start one byte off
};

std::string describe(const Parts& parts) {
  return fmt::format("{}{}{}{}{}{}", parts.amax ? "amax " : "", parts.rows ? "rows " : "",
                     parts.column_amax ? "column_amax " : "", to_string(parts.element),
                     parts.power_of_two ? " power of two" : "", parts.unaligned ? " unaligned" : "");
}

Float8Sink make_sink(const Parts& parts, const Shape& shape, DType dtype) {
  Float8Sink sink{.power_of_two = parts.power_of_two};
  if (parts.amax) sink.amax = Tensor::zeros({}, DType::f32, kGpu);
  if (parts.column_amax) sink.column_amax = Tensor::zeros({1, shape[1]}, DType::f32, kGpu);
  if (parts.rows) {
    const Tensor codes = poison({shape.numel() + 1}, payload_dtype(parts.element), 0xA5);
    sink.rows = QuantTensor({.element = parts.element, .granularity = Granularity::row}, shape, dtype,
                            codes.narrow(0, parts.unaligned ? 1 : 0, shape.numel()).view(shape),
                            poison({shape[0], 1}, DType::f32, 0xA5));
  }
  return sink;
}

void expect_filled(const Float8Sink& sink, const Tensor& result) {
  if (sink.amax.defined()) {
    EXPECT_TRUE(same(sink.amax, amax(result, Granularity::tensor)));
  }
  if (sink.column_amax.defined()) {
    EXPECT_TRUE(same(sink.column_amax, amax(result, Granularity::column)));
  }
  if (!sink.rows.defined()) return;
  const QuantTensor expected =
      quantize_float8(result, {sink.rows.format().element, Granularity::row, sink.power_of_two});
  EXPECT_TRUE(same(sink.rows.scales(), expected.scales()));
  EXPECT_TRUE(same(sink.rows.payload(), expected.payload()));
}

// An op with one result that has a sink; `others` are its other outputs, which it makes itself.
using Others = std::vector<Tensor>;
using Op = std::function<Others(const Tensor& result, const Float8Sink& sink)>;

// Runs the op without a sink and with one, twice: results and other outputs are the same bits, and the sink has what
// the casts make of the result.
void check(const Shape& shape, DType dtype, const Parts& parts, const Op& op) {
  SCOPED_TRACE(fmt::format("{}{} {}", to_string(dtype), shape.to_string(), describe(parts)));
  const Tensor plain = poison(shape, dtype);
  const Others plain_others = op(plain, {});
  for (int run = 0; run < 2; ++run) {
    const Tensor result = poison(shape, dtype, run == 0 ? 0xA5 : 0x5A);
    const Float8Sink sink = make_sink(parts, shape, dtype);
    const Others others = op(result, sink);
    EXPECT_TRUE(same(result, plain));
    ASSERT_EQ(others.size(), plain_others.size());
    for (std::size_t i = 0; i < others.size(); ++i) EXPECT_TRUE(same(others[i], plain_others[i])) << "output " << i;
    expect_filled(sink, result);
  }
}

// Every combination of parts, with the element format and the kind of scale changing from one to the next.
std::vector<Parts> all_parts(std::uint32_t turn) {
  std::vector<Parts> result;
  for (unsigned bits = 1; bits < 8; ++bits, ++turn)
    result.push_back({.amax = (bits & 1u) != 0,
                      .rows = (bits & 2u) != 0,
                      .column_amax = (bits & 4u) != 0,
                      .element = turn % 2 == 0 ? ElementFormat::e4m3 : ElementFormat::e5m2,
                      .power_of_two = turn / 2 % 2 == 0});
  return result;
}

// The parts of the float8 recipes: by tensor, and by row.
std::vector<Parts> recipe_parts() {
  return {{.amax = true}, {.rows = true, .column_amax = true, .power_of_two = true}};
}

// A random matrix on the GPU: rows of very different size, one element replaced if `special` is not 0.
Tensor operand(std::uint32_t seed, const Shape& shape, DType dtype, double scale = 1.0, double special = 0.0) {
  constexpr std::int64_t kBlock = 65537;
  Generator random(seed);
  const Tensor block = random.normal({std::min(kBlock, shape.numel())}, dtype, scale);
  const Tensor t = Tensor::empty(shape, dtype);
  const auto width = static_cast<std::size_t>(byte_size(dtype));
  for (std::int64_t i = 0; i < shape.numel(); i += kBlock)
    std::memcpy(static_cast<std::byte*>(t.raw_data()) + static_cast<std::size_t>(i) * width, block.raw_data(),
                static_cast<std::size_t>(std::min(kBlock, shape.numel() - i)) * width);
  for (std::int64_t c = 0; c < shape[1] && shape[0] > 2; ++c) {
    set_element(t, shape[1] + c, get_element(t, shape[1] + c) * 1e-6);
    set_element(t, 2 * shape[1] + c, 0.0);
  }
  if (special != 0.0) set_element(t, random.below(t.numel()), special);
  return t.to(kGpu);
}

constexpr double kSpecials[] = {0.0, static_cast<double>(NAN), static_cast<double>(INFINITY)};

Op forward(const Tensor& gate_up) {
  return [=](const Tensor& out, const Float8Sink& sink) -> Others {
    swiglu({gate_up, out, sink});
    return {};
  };
}

Op backward(const Tensor& dout, const Tensor& gate_up, bool with_out) {
  return [=](const Tensor& dgate_up, const Float8Sink& sink) -> Others {
    const Tensor out = with_out ? poison(dout.shape(), dout.dtype()) : Tensor();
    swiglu_backward({dout, gate_up, dgate_up, out, sink});
    return with_out ? Others{out} : Others{};
  };
}

TEST(CudaQuantSink, SwigluEveryCombination) {
  std::uint32_t seed = 0;
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const Shape& shape : {Shape{1, 8}, Shape{5, 3}, Shape{300, 24}, Shape{37, 100}, Shape{290, 1032}})  // [N,I]
      for (const double special : kSpecials) {
        const Shape whole{shape[0], 2 * shape[1]};
        const Tensor gate_up = operand(++seed, whole, dtype, 3.0, special), dout = operand(++seed, shape, dtype);
        for (const Parts& parts : all_parts(seed)) {
          check(shape, dtype, parts, forward(gate_up));
          check(whole, dtype, parts, backward(dout, gate_up, parts.amax));
        }
      }
}

// One to four pieces a thread, rows of whole blocks and not, up to the widest that fit in shared memory, and beyond.
TEST(CudaQuantSink, SwigluAtTypicalWidths) {
  std::uint32_t seed = 100;
  for (const std::int64_t width : {4096, 4104, 8192, 14336, 18944, 19344, 19352, 29024, 29032}) {
    const Shape shape{width == 4096 ? 600 : width < 20000 ? 300 : 140, width}, whole{shape[0], 2 * width};
    const Tensor gate_up = operand(++seed, whole, DType::bf16, 3.0), dout = operand(++seed, shape, DType::bf16);
    for (const Parts& parts : recipe_parts()) {
      check(shape, DType::bf16, parts, forward(gate_up));
      check(whole, DType::bf16, parts, backward(dout, gate_up, parts.rows));
    }
  }
}

TEST(CudaQuantSink, SwigluOverItsInput) {
  for (const std::int64_t width : {24, 8192}) {
    const Shape shape{280, width}, whole{280, 2 * width};
    const Tensor gate_up = operand(150, whole, DType::bf16, 3.0), dout = operand(151, shape, DType::bf16),
                 expected = poison(whole, DType::bf16);
    swiglu_backward({dout, gate_up, expected});
    for (const Parts& parts : recipe_parts()) {
      SCOPED_TRACE(describe(parts));
      const Tensor in_place = gate_up.clone();
      const Float8Sink sink = make_sink(parts, whole, DType::bf16);
      swiglu_backward({dout, in_place, in_place, {}, sink});
      EXPECT_TRUE(same(in_place, expected));
      expect_filled(sink, expected);
    }
  }
}

struct Norm {
  Tensor x, residual, weight, dy, rstd;
};

Norm norm_operands(std::uint32_t seed, const Shape& shape, DType dtype, double special = 0.0) {
  Norm n{.x = operand(seed, shape, dtype, 2.0, special),
         .residual = operand(seed + 1, shape, dtype),
         .weight = operand(seed + 2, {1, shape[1]}, dtype).view({shape[1]}),
         .dy = operand(seed + 3, shape, dtype),
         .rstd = Tensor::empty({shape[0]}, DType::f32, kGpu)};
  rms_norm({.x = n.x, .weight = n.weight, .y = Tensor::empty(shape, dtype, kGpu), .rstd = n.rstd});
  return n;
}

Op forward(const Norm& n, bool with_residual) {
  return [=](const Tensor& y, const Float8Sink& sink) -> Others {
    const Tensor rstd = poison(n.rstd.shape(), DType::f32);
    if (!with_residual) {
      rms_norm({.x = n.x, .weight = n.weight, .y = y, .rstd = rstd, .sink = sink});
      return {rstd};
    }
    const Tensor sum = poison(n.x.shape(), n.x.dtype());
    rms_norm({.x = n.x, .residual = n.residual, .weight = n.weight, .y = y, .sum = sum, .rstd = rstd, .sink = sink});
    return {rstd, sum};
  };
}

Op backward(const Norm& n, bool with_dsum, bool with_dweight, bool with_y) {
  return [=](const Tensor& dx, const Float8Sink& sink) -> Others {
    const Tensor dweight = with_dweight ? poison(n.weight.shape(), DType::f32) : Tensor(),
                 y = with_y ? poison(n.x.shape(), n.x.dtype()) : Tensor();
    rms_norm_backward({.dy = n.dy,
                       .x = n.x,
                       .weight = n.weight,
                       .rstd = n.rstd,
                       .dsum = with_dsum ? n.residual : Tensor(),
                       .dx = dx,
                       .dweight = dweight,
                       .y = y,
                       .sink = sink});
    Others others;
    if (with_dweight) others.push_back(dweight);
    if (with_y) others.push_back(y);
    return others;
  };
}

TEST(CudaQuantSink, RmsNormEveryCombination) {
  std::uint32_t seed = 200;
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const Shape& shape :
         {Shape{1, 1}, Shape{5, 33}, Shape{40, 64}, Shape{300, 256}, Shape{70, 1000}, Shape{1100, 1032}})
      for (const double special : kSpecials) {
        const Norm n = norm_operands(seed += 4, shape, dtype, special);
        for (const Parts& parts : all_parts(seed)) {
          check(shape, dtype, parts, forward(n, parts.amax));
          check(shape, dtype, parts, backward(n, parts.rows, parts.column_amax || parts.amax, parts.amax));
        }
      }
}

// Every number of threads a row; more rows than resident blocks, so that the maxima stay over many rows.
TEST(CudaQuantSink, RmsNormAtTypicalWidths) {
  std::uint32_t seed = 300;
  for (const std::int64_t width : {896, 1024, 2048, 3584, 4096, 5120, 8192, 8200, 16384, 16392, 40000}) {
    const Shape shape{6144000 / width, width};
    const Norm n = norm_operands(seed += 4, shape, DType::bf16);
    for (const Parts& parts : recipe_parts()) {
      check(shape, DType::bf16, parts, forward(n, parts.rows));
      check(shape, DType::bf16, parts, backward(n, true, true, parts.rows));
    }
  }
}

// Every size of a group of threads with its narrowest and widest rows; one row, fewer rows than multiprocessors, and
// groups that take one row more than others.
TEST(CudaQuantSink, RmsNormGroupsOfThreads) {
  std::uint32_t seed = 350;
  const std::vector<Parts> parts_of_rows = {
      {.rows = true, .column_amax = true, .power_of_two = true},
      {.rows = true, .element = ElementFormat::e5m2},
      {.column_amax = true},
      {.amax = true, .rows = true, .column_amax = true},
  };
  for (const std::int64_t width : {264, 1024, 1032, 2048, 2056, 3584, 4096, 4104, 8192})
    for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{131}, 3340000 / width}) {
      const Shape shape{rows, width};
      seed += 4;
      const Norm n = norm_operands(seed, shape, DType::bf16, kSpecials[seed / 4 % 3]);
      for (const Parts& parts : parts_of_rows)
        check(shape, DType::bf16, parts, forward(n, (rows % 2 == 0) != parts.amax));
    }
}

// Rows apart in a larger matrix, in whole pieces and not.
TEST(CudaQuantSink, RmsNormOfStridedRows) {
  std::uint32_t seed = 370;
  for (const std::int64_t width : {1000, 4096})
    for (const std::int64_t start : {8, 3}) {
      const Shape shape{500, width};
      Norm n = norm_operands(seed += 4, shape, DType::bf16);
      const auto apart = [&](std::int64_t gap) {
        return operand(++seed, {shape[0], width + gap}, DType::bf16, 2.0).narrow(1, start, width);
      };
      n.x = apart(16);
      n.residual = apart(40);
      for (const Parts& parts : recipe_parts())
        for (const bool with_residual : {false, true}) check(shape, DType::bf16, parts, forward(n, with_residual));
    }
}

// Sums, results and weights below the normal numbers, down to zero.
TEST(CudaQuantSink, RmsNormOfTinyNumbers) {
  for (const double x_scale : {1.0, 1e-38, 1e-39})
    for (const double weight_scale : {1.0, 1e-36, 1e-38, 1e-40}) {
      const Shape shape{300, 2048};
      Norm n = norm_operands(390, shape, DType::bf16);
      n.x = operand(391, shape, DType::bf16, x_scale);
      n.residual = operand(392, shape, DType::bf16, x_scale);
      n.weight = operand(393, {1, shape[1]}, DType::bf16, weight_scale).view({shape[1]});
      for (const bool with_residual : {false, true})
        check(shape, DType::bf16, recipe_parts().back(), forward(n, with_residual));
    }
}

TEST(CudaQuantSink, RmsNormSumOverItsInput) {
  const Shape shape{700, 3584};
  const Norm n = norm_operands(396, shape, DType::bf16);
  const Tensor expected = poison(shape, DType::bf16), expected_sum = poison(shape, DType::bf16);
  rms_norm({.x = n.x, .residual = n.residual, .weight = n.weight, .y = expected, .sum = expected_sum, .rstd = n.rstd});
  for (const bool over_x : {false, true}) {
    const Tensor x = n.x.clone(), residual = n.residual.clone(), sum = over_x ? x : residual,
                 y = poison(shape, DType::bf16);
    const Float8Sink sink = make_sink(recipe_parts().back(), shape, DType::bf16);
    rms_norm({.x = x, .residual = residual, .weight = n.weight, .y = y, .sum = sum, .rstd = n.rstd, .sink = sink});
    EXPECT_TRUE(same(y, expected));
    EXPECT_TRUE(same(sum, expected_sum));
    expect_filled(sink, expected);
  }
}

TEST(CudaQuantSink, RmsNormOverItsInput) {
  for (const std::int64_t width : {1000, 4096}) {
    const Shape shape{700, width};
    const Norm n = norm_operands(400, shape, DType::bf16);
    const Tensor expected = poison(shape, DType::bf16);
    rms_norm_backward({.dy = n.dy, .x = n.x, .weight = n.weight, .rstd = n.rstd, .dsum = n.residual, .dx = expected});
    for (const Parts& parts : recipe_parts())
      for (const bool over_dy : {false, true}) {
        SCOPED_TRACE(describe(parts));
        const Tensor dy = n.dy.clone(), dsum = n.residual.clone(), dx = over_dy ? dy : dsum;
        const Float8Sink sink = make_sink(parts, shape, DType::bf16);
        rms_norm_backward(
            {.dy = dy, .x = n.x, .weight = n.weight, .rstd = n.rstd, .dsum = dsum, .dx = dx, .sink = sink});
        EXPECT_TRUE(same(dx, expected));
        expect_filled(sink, expected);
      }
  }
}

TEST(CudaQuantSink, CodesThatAreNotAligned) {
  const Shape shape{20, 2048}, whole{20, 4096};
  const Tensor gate_up = operand(500, whole, DType::bf16), dout = operand(501, shape, DType::bf16);
  const Norm n = norm_operands(502, shape, DType::bf16);
  for (Parts parts : all_parts(0)) {
    if (!parts.rows) continue;
    parts.unaligned = true;
    check(shape, DType::bf16, parts, forward(gate_up));
    check(whole, DType::bf16, parts, backward(dout, gate_up, true));
    check(shape, DType::bf16, parts, forward(n, true));
    check(shape, DType::bf16, parts, backward(n, true, true, true));
  }
}

TEST(CudaQuantSink, MaximaRiseAndNeverFall) {
  const Shape shape{64, 2048};
  const Tensor gate_up = operand(600, {64, 4096}, DType::bf16, 3.0);
  const Norm n = norm_operands(601, shape, DType::bf16);
  const Op ops[] = {forward(gate_up), forward(n, false), backward(n, true, true, false)};
  const Tensor earlier = Tensor::empty({1, 2048}, DType::f32);
  for (std::int64_t c = 0; c < 2048; ++c)
    earlier.data<float>()[c] = c % 3 == 0 ? 0.0f : c % 3 == 1 ? 1e30f : c == 2 ? NAN : 0.5f;
  for (const Op& op : ops)
    for (const bool by_rows : {false, true})
      for (const float before : {0.25f, 1e30f, NAN}) {
        const Tensor result = poison(shape, DType::bf16);
        Float8Sink sink = make_sink({.amax = true, .column_amax = by_rows}, shape, DType::bf16);
        sink.amax.copy_from(Tensor::from_values<float>({}, std::array{before}));
        if (by_rows) sink.column_amax.copy_from(earlier);
        op(result, sink);
        const auto raised = [](float old, float now) { return std::isnan(old) ? old : std::max(old, now); };
        const auto matches = [&](float got, float expected) {
          return std::isnan(expected) ? std::isnan(got) : got == expected;
        };
        const Tensor most = on_cpu(amax(result, Granularity::tensor)), got = on_cpu(sink.amax);
        EXPECT_TRUE(matches(*got.data<float>(), raised(before, *most.data<float>())));
        if (!by_rows) continue;
        const Tensor columns = on_cpu(amax(result, Granularity::column)), own = on_cpu(sink.column_amax);
        for (std::int64_t c = 0; c < 2048; ++c)
          ASSERT_TRUE(matches(own.data<float>()[c], raised(earlier.data<float>()[c], columns.data<float>()[c]))) << c;
      }
}

// Near real use: 2^31 elements and more cannot be had in a test, thousands of rows can.
TEST(CudaQuantSink, LargeResults) {
  const Shape shape{4099, 14336}, whole{4099, 28672}, hidden{8195, 4096};
  const Tensor gate_up = operand(700, whole, DType::bf16, 3.0), dout = operand(701, shape, DType::bf16);
  const Norm n = norm_operands(702, hidden, DType::bf16);
  const Parts parts{.amax = true, .rows = true, .column_amax = true};
  const auto check_once = [&](const Shape& result_shape, const Op& op) {
    const Tensor result = Tensor::empty(result_shape, DType::bf16, kGpu);
    const Float8Sink sink = make_sink(parts, result_shape, DType::bf16);
    op(result, sink);
    expect_filled(sink, result);
  };
  check_once(shape, forward(gate_up));
  check_once(whole, backward(dout, gate_up, false));
  check_once(hidden, forward(n, true));
  check_once(hidden, backward(n, true, true, false));
}

TEST(CudaQuantSink, EmptyResults) {
  for (const Shape& shape : {Shape{0, 64}, Shape{4, 0}}) {
    const Tensor half = Tensor::empty(shape, DType::bf16, kGpu),
                 whole = Tensor::empty({shape[0], 2 * shape[1]}, DType::bf16, kGpu);
    const Float8Sink sink = make_sink({.amax = true, .rows = true, .column_amax = true}, shape, DType::bf16);
    swiglu({whole, half, sink});
    expect_filled(sink, half);
  }
}

}  // namespace
}  // namespace quench::testing
