#include "core/ops/quantize/quant_outputs.h"

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

QuantOutputs quant_outputs_of(const Tensor& x, ElementFormat element = ElementFormat::e4m3, bool power_of_two = false) {
  return {.amax = scalar(0),
          .rows = rows_of(x, element),
          .power_of_two = power_of_two,
          .column_amax = Tensor::zeros({1, x.size(1)}, DType::f32)};
}

// The quantization outputs are what the casts make of the stored result.
void expect_filled(const QuantOutputs& quant_outputs, const Tensor& result) {
  if (quant_outputs.amax.defined()) {
    EXPECT_TRUE(same_bits(quant_outputs.amax, amax(result, Granularity::tensor)));
  }
  if (quant_outputs.column_amax.defined()) {
    EXPECT_TRUE(same_bits(quant_outputs.column_amax, amax(result, Granularity::column)));
  }
  if (!quant_outputs.rows.defined()) return;
  const QuantTensor expected =
      quantize_float8(result, {quant_outputs.rows.format().element, Granularity::row, quant_outputs.power_of_two});
  EXPECT_TRUE(same_bits(quant_outputs.rows.payload(), expected.payload()));
  EXPECT_TRUE(same_bits(quant_outputs.rows.scales(), expected.scales()));
}

TEST(QuantOutputsTest, HasWhatTheCastsMakeOfTheResult) {
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
            const QuantOutputs quant_outputs = quant_outputs_of(x, element, power_of_two);
            fill_quant_outputs(quant_outputs, x);
            expect_filled(quant_outputs, x);
          }
}

TEST(QuantOutputsTest, EveryPartMayBeMissing) {
  Generator random(2);
  const Tensor x = random.normal({9, 40}, DType::bf16);
  for (unsigned parts = 0; parts < 8; ++parts) {
    SCOPED_TRACE(parts);
    QuantOutputs quant_outputs = quant_outputs_of(x);
    if ((parts & 1u) == 0) quant_outputs.amax = Tensor();
    if ((parts & 2u) == 0) quant_outputs.rows = QuantTensor();
    if ((parts & 4u) == 0) quant_outputs.column_amax = Tensor();
    EXPECT_EQ(quant_outputs.wanted(), parts != 0);
    check_quant_outputs("test", quant_outputs, x);
    fill_quant_outputs(quant_outputs, x);
    expect_filled(quant_outputs, x);
  }
}

TEST(QuantOutputsTest, MaximaRiseAndNeverFall) {
  const Tensor x = Tensor::from_values<float>({2, 5}, std::array{1.0f, -2.0f, 3.0f, 0.5f, NAN,  //
                                                                 -4.0f, 1.0f, 0.0f, INFINITY, 6.0f});
  const std::array<float, 5> before{5.0f, 1.0f, NAN, 7.0f, 2.0f};
  for (const bool with_rows : {false, true}) {
    QuantOutputs quant_outputs{.column_amax = Tensor::from_values<float>({1, 5}, before)};
    if (with_rows) quant_outputs.rows = rows_of(x);
    fill_quant_outputs(quant_outputs, x);
    const float* columns = quant_outputs.column_amax.data<float>();
    EXPECT_EQ(columns[0], 5.0f);
    EXPECT_EQ(columns[1], 2.0f);
    EXPECT_TRUE(std::isnan(columns[2]));
    EXPECT_EQ(columns[3], INFINITY);
    EXPECT_TRUE(std::isnan(columns[4]));
  }
  const Tensor finite = x.narrow(0, 0, 1).narrow(1, 0, 4).clone();  // at most 3
  const auto raised = [&](float earlier, const Tensor& by) {
    const QuantOutputs quant_outputs{.amax = scalar(earlier)};
    fill_quant_outputs(quant_outputs, by);
    return *quant_outputs.amax.data<float>();
  };
  EXPECT_EQ(raised(0.0f, finite), 3.0f);
  EXPECT_EQ(raised(2.5f, finite), 3.0f);
  EXPECT_EQ(raised(3.5f, finite), 3.5f);
  EXPECT_EQ(raised(INFINITY, finite), INFINITY);
  EXPECT_TRUE(std::isnan(raised(NAN, finite)));
  EXPECT_TRUE(std::isnan(raised(0.0f, x)));
  EXPECT_TRUE(std::isnan(raised(INFINITY, x)));
}

TEST(QuantOutputsTest, EmptyResults) {
  for (const Shape& shape : {Shape{0, 6}, Shape{5, 0}}) {
    SCOPED_TRACE(shape.to_string());
    const Tensor x = Tensor::empty(shape, DType::bf16);
    QuantOutputs quant_outputs = quant_outputs_of(x);
    *quant_outputs.amax.data<float>() = 2.0f;
    fill(quant_outputs.column_amax, 3.0);
    fill_quant_outputs(quant_outputs, x);
    EXPECT_EQ(*quant_outputs.amax.data<float>(), 2.0f);
    for (const double value : values(quant_outputs.column_amax)) EXPECT_EQ(value, 3.0);
    EXPECT_TRUE(same_bits(quant_outputs.rows.scales(), quantize_float8(x, {.granularity = Granularity::row}).scales()));
    // The ops do it as well, which have nothing else to do.
    const auto scales = [&](const std::function<void(const QuantOutputs&)>& op, std::int64_t width) {
      const QuantOutputs own = quant_outputs_of(Tensor::empty({shape[0], width}, DType::bf16));
      op(own);
      for (const double value : values(own.rows.scales())) EXPECT_EQ(value, 448 / 1e-12f);
    };
    const Tensor both = Tensor::empty({shape[0], 2 * shape[1]}, DType::bf16);
    scales([&](const QuantOutputs& own) { swiglu({both, x, own}); }, shape[1]);
    scales([&](const QuantOutputs& own) { swiglu_backward({x, both, both, {}, own}); }, 2 * shape[1]);
    const Tensor weight = Tensor::zeros({shape[1]}, DType::bf16), rstd = Tensor::zeros({shape[0]}, DType::f32);
    scales(
        [&](const QuantOutputs& own) {
          rms_norm({.x = x, .weight = weight, .y = x, .rstd = rstd, .quant_outputs = own});
        },
        shape[1]);
    scales(
        [&](const QuantOutputs& own) {
          rms_norm_backward({.dy = x, .x = x, .weight = weight, .rstd = rstd, .dx = x, .quant_outputs = own});
        },
        shape[1]);
  }
}

TEST(QuantOutputsTest, OfTheProducers) {
  Generator random(3);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : {Shape{5, 24}, Shape{40, 333}}) {
      SCOPED_TRACE(fmt::format("{}{}", to_string(dtype), shape.to_string()));
      const Shape double_width{shape[0], 2 * shape[1]};
      const auto empty = [&] { return Tensor::empty(shape, dtype); };
      const auto check = [&](const Shape& result_shape,
                             const std::function<void(const Tensor&, const QuantOutputs&)>& op) {
        const Tensor plain = Tensor::empty(result_shape, dtype), result = Tensor::empty(result_shape, dtype);
        op(plain, {});
        const QuantOutputs quant_outputs = quant_outputs_of(result, ElementFormat::e4m3, true);
        op(result, quant_outputs);
        EXPECT_TRUE(same_bits(result, plain));
        expect_filled(quant_outputs, result);
      };
      const Tensor gate_up = random.normal(double_width, dtype, 3.0), dout = random.normal(shape, dtype);
      for (const GatedActivation activation : kGatedActivations) {
        check(shape, [&](const Tensor& out, const QuantOutputs& quant_outputs) {
          swiglu({gate_up, out, quant_outputs, activation});
        });
        check(double_width, [&](const Tensor& dgate_up, const QuantOutputs& quant_outputs) {
          swiglu_backward({dout, gate_up, dgate_up, empty(), quant_outputs, {}, activation});
        });
      }
      const Tensor x = random.normal(shape, dtype), residual = random.normal(shape, dtype),
                   weight = random.normal({shape[1]}, dtype), rstd = Tensor::empty({shape[0]}, DType::f32);
      check(shape, [&](const Tensor& y, const QuantOutputs& quant_outputs) {
        rms_norm({.x = x,
                  .residual = residual,
                  .weight = weight,
                  .y = y,
                  .sum = empty(),
                  .rstd = rstd,
                  .quant_outputs = quant_outputs});
      });
      check(shape, [&](const Tensor& dx, const QuantOutputs& quant_outputs) {
        rms_norm_backward({.dy = dout,
                           .x = x,
                           .weight = weight,
                           .rstd = rstd,
                           .dsum = residual,
                           .dx = dx,
                           .quant_outputs = quant_outputs});
      });
    }
}

TEST(QuantOutputsTest, RejectsWhatDoesNotFit) {
  const Tensor x = Tensor::zeros({4, 6}, DType::bf16), weight = Tensor::zeros({6}, DType::bf16),
               rstd = Tensor::zeros({4}, DType::f32), both = Tensor::zeros({4, 12}, DType::bf16);
  const auto rejects = [&](const QuantOutputs& quant_outputs, std::string_view what) {
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
             swiglu({both, x, quant_outputs});
           }) &&
           throws([&] {
             swiglu_backward({half, x, x, {}, quant_outputs});
           }) &&
           throws(
               [&] { rms_norm({.x = x, .weight = weight, .y = x, .rstd = rstd, .quant_outputs = quant_outputs}); }) &&
           throws([&] {
             rms_norm_backward(
                 {.dy = x, .x = x, .weight = weight, .rstd = rstd, .dx = x, .quant_outputs = quant_outputs});
           });
  };
  EXPECT_TRUE(rejects({.amax = Tensor::zeros({1}, DType::f32)}, "quant_outputs.amax"));
  EXPECT_TRUE(rejects({.amax = Tensor::zeros({}, DType::bf16)}, "quant_outputs.amax"));
  EXPECT_TRUE(rejects({.column_amax = Tensor::zeros({6}, DType::f32)}, "quant_outputs.column_amax"));
  EXPECT_TRUE(rejects({.column_amax = Tensor::zeros({1, 5}, DType::f32)}, "quant_outputs.column_amax"));
  EXPECT_TRUE(rejects({.rows = rows_of(Tensor::zeros({4, 5}, DType::bf16))}, "quant_outputs.rows"));
  const auto format = [&](const QuantFormat& other) {
    return QuantOutputs{.rows = QuantTensor::empty(other, x.shape(), DType::bf16)};
  };
  EXPECT_TRUE(rejects(format({.granularity = Granularity::tensor}), "quant_outputs.rows"));
  EXPECT_TRUE(rejects(format({.granularity = Granularity::column}), "quant_outputs.rows"));
  EXPECT_TRUE(
      rejects(format({.granularity = Granularity::row, .orientation = Orientation::transposed}), "quant_outputs.rows"));
  EXPECT_TRUE(rejects(format({.element = ElementFormat::e2m3, .granularity = Granularity::row}), "quant_outputs.rows"));
  // Quantization outputs need a contiguous matrix.
  const Tensor heads = Tensor::zeros({4, 2, 3}, DType::bf16), wide = Tensor::zeros({4, 8}, DType::bf16);
  const QuantOutputs amax_only{.amax = scalar(0)};
  EXPECT_THROW(rms_norm({.x = heads,
                         .weight = Tensor::zeros({3}, DType::bf16),
                         .y = heads,
                         .rstd = Tensor::zeros({4, 2}, DType::f32),
                         .quant_outputs = amax_only}),
               Error);
  EXPECT_THROW(
      rms_norm({.x = x, .weight = weight, .y = wide.narrow(1, 0, 6), .rstd = rstd, .quant_outputs = amax_only}), Error);
}

}  // namespace
}  // namespace quench
