#include "core/ops/quantize/quant_sink.h"

#include <functional>

#include "core/ops/norm.h"
#include "core/ops/quantize/quantize.h"
#include "core/ops/swiglu.h"
#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

Tensor scalar(float value) {
  return Tensor::from_values<float>({}, std::array{value});
}

QuantTensor rows_of(const Tensor& x, ElementFormat element = ElementFormat::e4m3) {
  const QuantTensor rows =
      QuantTensor::empty({.element = element, .granularity = Granularity::row}, x.shape(), x.dtype());
  std::memset(rows.payload().raw_data(), 0x55, rows.payload().nbytes());
  fill(rows.scales(), -7.0);
  return rows;
}

Float8Sink sink_of(const Tensor& x, ElementFormat element = ElementFormat::e4m3, bool power_of_two = false) {
  return {.amax = scalar(0),
          .rows = rows_of(x, element),
          .power_of_two = power_of_two,
          .column_amax = Tensor::zeros({1, x.size(1)}, DType::f32)};
}

// The sink has what the casts make of the stored result.
void expect_filled(const Float8Sink& sink, const Tensor& result) {
  if (sink.amax.defined()) {
    EXPECT_TRUE(same_bits(sink.amax, amax(result, Granularity::tensor)));
  }
  if (sink.column_amax.defined()) {
    EXPECT_TRUE(same_bits(sink.column_amax, amax(result, Granularity::column)));
  }
  if (!sink.rows.defined()) return;
  const QuantTensor expected =
      quantize_float8(result, {sink.rows.format().element, Granularity::row, sink.power_of_two});
  EXPECT_TRUE(same_bits(sink.rows.payload(), expected.payload()));
  EXPECT_TRUE(same_bits(sink.rows.scales(), expected.scales()));
}

TEST(QuantizeSink, HasWhatTheCastsMakeOfTheResult) {
  Generator random(1);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : {Shape{1, 1}, Shape{3, 7}, Shape{33, 130}, Shape{70, 512}})
      for (const ElementFormat element : {ElementFormat::e4m3, ElementFormat::e5m2})
        for (const bool power_of_two : {false, true})
          for (const double spoilt : {0.0, static_cast<double>(NAN), static_cast<double>(-INFINITY)}) {
            SCOPED_TRACE(fmt::format("{}{} {} {} with {}", to_string(dtype), shape.to_string(), to_string(element),
                                     power_of_two, spoilt));
            const Tensor x = random.normal(shape, dtype, 5.0);
            set_element(x, x.numel() / 2, spoilt);
            const Float8Sink sink = sink_of(x, element, power_of_two);
            fill_sink(sink, x);
            expect_filled(sink, x);
          }
}

TEST(QuantizeSink, EveryPartMayBeMissing) {
  Generator random(2);
  const Tensor x = random.normal({9, 40}, DType::bf16);
  for (unsigned parts = 0; parts < 8; ++parts) {
    SCOPED_TRACE(parts);
    Float8Sink sink = sink_of(x);
    if ((parts & 1u) == 0) sink.amax = Tensor();
    if ((parts & 2u) == 0) sink.rows = QuantTensor();
    if ((parts & 4u) == 0) sink.column_amax = Tensor();
    EXPECT_EQ(sink.wanted(), parts != 0);
    check_sink("test", sink, x);
    fill_sink(sink, x);
    expect_filled(sink, x);
  }
}

TEST(QuantizeSink, MaximaRiseAndNeverFall) {
  const Tensor x = Tensor::from_values<float>({2, 5}, std::array{1.0f, -2.0f, 3.0f, 0.5f, NAN,  //
                                                                 -4.0f, 1.0f, 0.0f, INFINITY, 6.0f});
  const std::array<float, 5> before{5.0f, 1.0f, NAN, 7.0f, 2.0f};
  for (const bool with_rows : {false, true}) {
    Float8Sink sink{.column_amax = Tensor::from_values<float>({1, 5}, before)};
    if (with_rows) sink.rows = rows_of(x);
    fill_sink(sink, x);
    const float* columns = sink.column_amax.data<float>();
    EXPECT_EQ(columns[0], 5.0f);
    EXPECT_EQ(columns[1], 2.0f);
    EXPECT_TRUE(std::isnan(columns[2]));
    EXPECT_EQ(columns[3], INFINITY);
    EXPECT_TRUE(std::isnan(columns[4]));
  }
  const Tensor finite = x.narrow(0, 0, 1).narrow(1, 0, 4).clone();  // at most 3
  const auto raised = [&](float earlier, const Tensor& by) {
    const Float8Sink sink{.amax = scalar(earlier)};
    fill_sink(sink, by);
    return *sink.amax.data<float>();
  };
  EXPECT_EQ(raised(0.0f, finite), 3.0f);
  EXPECT_EQ(raised(2.5f, finite), 3.0f);
  EXPECT_EQ(raised(3.5f, finite), 3.5f);
  EXPECT_EQ(raised(INFINITY, finite), INFINITY);
  EXPECT_TRUE(std::isnan(raised(NAN, finite)));
  EXPECT_TRUE(std::isnan(raised(0.0f, x)));
  EXPECT_TRUE(std::isnan(raised(INFINITY, x)));
}

TEST(QuantizeSink, EmptyResults) {
  for (const Shape& shape : {Shape{0, 6}, Shape{5, 0}}) {
    SCOPED_TRACE(shape.to_string());
    const Tensor x = Tensor::empty(shape, DType::bf16);
    Float8Sink sink = sink_of(x);
    *sink.amax.data<float>() = 2.0f;
    fill(sink.column_amax, 3.0);
    fill_sink(sink, x);
    EXPECT_EQ(*sink.amax.data<float>(), 2.0f);
    for (const double value : values(sink.column_amax)) EXPECT_EQ(value, 3.0);
    EXPECT_TRUE(same_bits(sink.rows.scales(), quantize_float8(x, {.granularity = Granularity::row}).scales()));
    // The ops do it as well, which have nothing else to do.
    const auto scales = [&](const std::function<void(const Float8Sink&)>& op, std::int64_t width) {
      const Float8Sink own = sink_of(Tensor::empty({shape[0], width}, DType::bf16));
      op(own);
      for (const double value : values(own.rows.scales())) EXPECT_EQ(value, 448 / 1e-12f);
    };
    const Tensor both = Tensor::empty({shape[0], 2 * shape[1]}, DType::bf16);
    scales([&](const Float8Sink& own) { swiglu({both, x, own}); }, shape[1]);
    scales([&](const Float8Sink& own) { swiglu_backward({x, both, both, {}, own}); }, 2 * shape[1]);
    const Tensor weight = Tensor::zeros({shape[1]}, DType::bf16), rstd = Tensor::zeros({shape[0]}, DType::f32);
    scales([&](const Float8Sink& own) { rms_norm({.x = x, .weight = weight, .y = x, .rstd = rstd, .sink = own}); },
           shape[1]);
    scales(
        [&](const Float8Sink& own) {
          rms_norm_backward({.dy = x, .x = x, .weight = weight, .rstd = rstd, .dx = x, .sink = own});
        },
        shape[1]);
  }
}

TEST(QuantizeSink, OfTheProducers) {
  Generator random(3);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : {Shape{5, 24}, Shape{40, 333}}) {
      SCOPED_TRACE(fmt::format("{}{}", to_string(dtype), shape.to_string()));
      const Shape double_width{shape[0], 2 * shape[1]};
      const auto empty = [&] { return Tensor::empty(shape, dtype); };
      const auto check = [&](const Shape& result_shape,
                             const std::function<void(const Tensor&, const Float8Sink&)>& op) {
        const Tensor plain = Tensor::empty(result_shape, dtype), result = Tensor::empty(result_shape, dtype);
        op(plain, {});
        const Float8Sink sink = sink_of(result, ElementFormat::e4m3, true);
        op(result, sink);
        EXPECT_TRUE(same_bits(result, plain));
        expect_filled(sink, result);
      };
      const Tensor gate_up = random.normal(double_width, dtype, 3.0), dout = random.normal(shape, dtype);
      check(shape, [&](const Tensor& out, const Float8Sink& sink) { swiglu({gate_up, out, sink}); });
      check(double_width, [&](const Tensor& dgate_up, const Float8Sink& sink) {
        swiglu_backward({dout, gate_up, dgate_up, empty(), sink});
      });
      const Tensor x = random.normal(shape, dtype), residual = random.normal(shape, dtype),
                   weight = random.normal({shape[1]}, dtype), rstd = Tensor::empty({shape[0]}, DType::f32);
      check(shape, [&](const Tensor& y, const Float8Sink& sink) {
        rms_norm({.x = x, .residual = residual, .weight = weight, .y = y, .sum = empty(), .rstd = rstd, .sink = sink});
      });
      check(shape, [&](const Tensor& dx, const Float8Sink& sink) {
        rms_norm_backward(
            {.dy = dout, .x = x, .weight = weight, .rstd = rstd, .dsum = residual, .dx = dx, .sink = sink});
      });
    }
}

TEST(QuantizeSink, RejectsWhatDoesNotFit) {
  const Tensor x = Tensor::zeros({4, 6}, DType::bf16), weight = Tensor::zeros({6}, DType::bf16),
               rstd = Tensor::zeros({4}, DType::f32), both = Tensor::zeros({4, 12}, DType::bf16);
  const auto rejects = [&](const Float8Sink& sink, std::string_view what) {
    const auto throws = [&](const std::function<void()>& op) {
      try {
        op();
      } catch (const Error& e) {
        return e.code() == ErrorCode::invalid_argument && std::string_view(e.what()).find(what) != std::string::npos;
      }
      return false;
    };
    const Tensor half = Tensor::zeros({4, 3}, DType::bf16);
    return throws([&] {
             swiglu({both, x, sink});
           }) &&
           throws([&] {
             swiglu_backward({half, x, x, {}, sink});
           }) &&
           throws([&] { rms_norm({.x = x, .weight = weight, .y = x, .rstd = rstd, .sink = sink}); }) &&
           throws([&] { rms_norm_backward({.dy = x, .x = x, .weight = weight, .rstd = rstd, .dx = x, .sink = sink}); });
  };
  EXPECT_TRUE(rejects({.amax = Tensor::zeros({1}, DType::f32)}, "sink.amax"));
  EXPECT_TRUE(rejects({.amax = Tensor::zeros({}, DType::bf16)}, "sink.amax"));
  EXPECT_TRUE(rejects({.column_amax = Tensor::zeros({6}, DType::f32)}, "sink.column_amax"));
  EXPECT_TRUE(rejects({.column_amax = Tensor::zeros({1, 5}, DType::f32)}, "sink.column_amax"));
  EXPECT_TRUE(rejects({.rows = rows_of(Tensor::zeros({4, 5}, DType::bf16))}, "sink.rows"));
  const auto format = [&](const QuantFormat& other) {
    return Float8Sink{.rows = QuantTensor::empty(other, x.shape(), DType::bf16)};
  };
  EXPECT_TRUE(rejects(format({.granularity = Granularity::tensor}), "sink.rows"));
  EXPECT_TRUE(rejects(format({.granularity = Granularity::column}), "sink.rows"));
  EXPECT_TRUE(rejects(format({.granularity = Granularity::row, .orientation = Orientation::transposed}), "sink.rows"));
  EXPECT_TRUE(rejects(format({.element = ElementFormat::e2m3, .granularity = Granularity::row}), "sink.rows"));
  // A sink needs a contiguous matrix.
  const Tensor heads = Tensor::zeros({4, 2, 3}, DType::bf16), wide = Tensor::zeros({4, 8}, DType::bf16);
  const Float8Sink amax_only{.amax = scalar(0)};
  EXPECT_THROW(rms_norm({.x = heads,
                         .weight = Tensor::zeros({3}, DType::bf16),
                         .y = heads,
                         .rstd = Tensor::zeros({4, 2}, DType::f32),
                         .sink = amax_only}),
               Error);
  EXPECT_THROW(rms_norm({.x = x, .weight = weight, .y = wide.narrow(1, 0, 6), .rstd = rstd, .sink = amax_only}), Error);
}

}  // namespace
}  // namespace quench
