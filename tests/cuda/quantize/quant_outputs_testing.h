#pragma once
// Fused quantization outputs of kernels against the casts of what the kernels have stored, bit for bit:
// operands, and the check of one op.

#include <functional>

#include "core/ops/norm.h"
#include "core/ops/quantize/quant_outputs.h"
#include "core/ops/quantize/quantize.h"
#include "core/ops/swiglu.h"
#include "tests/cuda/fused_testing.h"

namespace quench::testing {

// The bytes of a contiguous tensor on the GPU.
inline std::vector<std::uint8_t> bytes_of(const Tensor& t) {
  std::vector<std::uint8_t> result(t.nbytes());
  const Stream stream = current_stream(t.device());
  backend(DeviceType::cuda).copy(result.data(), Device{}, t.raw_data(), t.device(), t.nbytes(), stream);
  backend(DeviceType::cuda).synchronize(stream);
  return result;
}

inline ::testing::AssertionResult same(const Tensor& a, const Tensor& b) {
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
inline Tensor poison(const Shape& shape, DType dtype, std::uint8_t byte = 0xFF) {
  if (shape.numel() == 0) return Tensor::empty(shape, dtype, kGpu);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(shape.numel() * byte_size(dtype)), byte);
  return Tensor::from_host(bytes.data(), shape, dtype).to(kGpu);
}

// The defined parts of quantization outputs.
struct Parts {
  bool amax = false, rows = false, column_amax = false;
  ElementFormat element = ElementFormat::e4m3;
  bool power_of_two = false;
  bool unaligned = false;  // codes start one byte off
};

inline std::string describe(const Parts& parts) {
  return fmt::format("{}{}{}{}{}{}", parts.amax ? "amax " : "", parts.rows ? "rows " : "",
                     parts.column_amax ? "column_amax " : "", to_string(parts.element),
                     parts.power_of_two ? " power of two" : "", parts.unaligned ? " unaligned" : "");
}

inline QuantOutputs make_quant_outputs(const Parts& parts, const Shape& shape, DType dtype) {
  QuantOutputs quant_outputs{.power_of_two = parts.power_of_two};
  if (parts.amax) quant_outputs.amax = Tensor::zeros({}, DType::f32, kGpu);
  if (parts.column_amax) quant_outputs.column_amax = Tensor::zeros({1, shape[1]}, DType::f32, kGpu);
  if (parts.rows) {
    const Tensor codes = poison({shape.numel() + 1}, payload_dtype(parts.element), 0xA5);
    quant_outputs.rows = QuantTensor({.element = parts.element, .granularity = Granularity::row}, shape, dtype,
                                     codes.narrow(0, parts.unaligned ? 1 : 0, shape.numel()).view(shape),
                                     poison({shape[0], 1}, DType::f32, 0xA5));
  }
  return quant_outputs;
}

inline void expect_filled(const QuantOutputs& quant_outputs, const Tensor& result) {
  if (quant_outputs.amax.defined()) {
    EXPECT_TRUE(same(quant_outputs.amax, amax(result, Granularity::tensor)));
  }
  if (quant_outputs.column_amax.defined()) {
    EXPECT_TRUE(same(quant_outputs.column_amax, amax(result, Granularity::column)));
  }
  if (!quant_outputs.rows.defined()) return;
  const QuantTensor expected =
      quantize_float8(result, {quant_outputs.rows.format().element, Granularity::row, quant_outputs.power_of_two});
  EXPECT_TRUE(same(quant_outputs.rows.scales(), expected.scales()));
  EXPECT_TRUE(same(quant_outputs.rows.payload(), expected.payload()));
}

// An op with one result that has quantization outputs; `others` are its other outputs, which it makes itself.
using Others = std::vector<Tensor>;
using Op = std::function<Others(const Tensor& result, const QuantOutputs& quant_outputs)>;

// Runs the op without quantization outputs and with them, twice: results and other outputs are the same bits, and the
// quantization outputs are what the casts make of the result.
inline void check(const Shape& shape, DType dtype, const Parts& parts, const Op& op) {
  SCOPED_TRACE(fmt::format("{}{} {}", to_string(dtype), shape.to_string(), describe(parts)));
  const Tensor plain = poison(shape, dtype);
  const Others plain_others = op(plain, {});
  for (int run = 0; run < 2; ++run) {
    const Tensor result = poison(shape, dtype, run == 0 ? 0xA5 : 0x5A);
    const QuantOutputs quant_outputs = make_quant_outputs(parts, shape, dtype);
    const Others others = op(result, quant_outputs);
    EXPECT_TRUE(same(result, plain));
    ASSERT_EQ(others.size(), plain_others.size());
    for (std::size_t i = 0; i < others.size(); ++i) EXPECT_TRUE(same(others[i], plain_others[i])) << "output " << i;
    expect_filled(quant_outputs, result);
  }
}

// Every combination of parts, with the element format and the kind of scale changing from one to the next.
inline std::vector<Parts> all_parts(std::uint32_t turn) {
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
inline std::vector<Parts> recipe_parts() {
  return {{.amax = true}, {.rows = true, .column_amax = true, .power_of_two = true}};
}

// A random matrix on the GPU: rows of very different size, one element replaced if `special` is not 0.
inline Tensor operand(std::uint32_t seed, const Shape& shape, DType dtype, double scale = 1.0, double special = 0.0) {
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

inline constexpr double kSpecials[] = {0.0, static_cast<double>(NAN), static_cast<double>(INFINITY)};

inline Op forward(const Tensor& gate_up, GatedActivation activation = GatedActivation::silu) {
  return [=](const Tensor& out, const QuantOutputs& quant_outputs) -> Others {
    swiglu({gate_up, out, quant_outputs, activation});
    return {};
  };
}

inline Op backward(const Tensor& dout, const Tensor& gate_up, bool with_out,
                   GatedActivation activation = GatedActivation::silu) {
  return [=](const Tensor& dgate_up, const QuantOutputs& quant_outputs) -> Others {
    const Tensor out = with_out ? poison(dout.shape(), dout.dtype()) : Tensor();
    swiglu_backward({dout, gate_up, dgate_up, out, quant_outputs, {}, activation});
    return with_out ? Others{out} : Others{};
  };
}

struct Norm {
  Tensor x, residual, weight, dy, rstd;
  RmsNormForm form{1e-5f};
};

inline Norm norm_operands(std::uint32_t seed, const Shape& shape, DType dtype, double special = 0.0,
                          const RmsNormForm& form = {1e-5f}) {
  Norm n{.x = operand(seed, shape, dtype, 2.0, special),
         .residual = operand(seed + 1, shape, dtype),
         .weight = operand(seed + 2, {1, shape[1]}, dtype).view({shape[1]}),
         .dy = operand(seed + 3, shape, dtype),
         .rstd = Tensor::empty({shape[0]}, DType::f32, kGpu),
         .form = form};
  rms_norm({.x = n.x,
            .weight = n.weight,
            .eps = form.eps,
            .weight_offset = form.weight_offset,
            .f32_weight = form.f32_weight,
            .y = Tensor::empty(shape, dtype, kGpu),
            .rstd = n.rstd});
  return n;
}

inline Op forward(const Norm& n, bool with_residual) {
  return [=](const Tensor& y, const QuantOutputs& quant_outputs) -> Others {
    const Tensor rstd = poison(n.rstd.shape(), DType::f32);
    const Tensor sum = with_residual ? poison(n.x.shape(), n.x.dtype()) : Tensor();
    rms_norm({.x = n.x,
              .residual = with_residual ? n.residual : Tensor(),
              .weight = n.weight,
              .eps = n.form.eps,
              .weight_offset = n.form.weight_offset,
              .f32_weight = n.form.f32_weight,
              .y = y,
              .sum = sum,
              .rstd = rstd,
              .quant_outputs = quant_outputs});
    return with_residual ? Others{rstd, sum} : Others{rstd};
  };
}

inline Op backward(const Norm& n, bool with_dsum, bool with_dweight, bool with_y) {
  return [=](const Tensor& dx, const QuantOutputs& quant_outputs) -> Others {
    const Tensor dweight = with_dweight ? poison(n.weight.shape(), DType::f32) : Tensor(),
                 y = with_y ? poison(n.x.shape(), n.x.dtype()) : Tensor();
    rms_norm_backward({.dy = n.dy,
                       .x = n.x,
                       .weight = n.weight,
                       .rstd = n.rstd,
                       .dsum = with_dsum ? n.residual : Tensor(),
                       .dx = dx,
                       .dweight = dweight,
                       .weight_offset = n.form.weight_offset,
                       .f32_weight = n.form.f32_weight,
                       .y = y,
                       .quant_outputs = quant_outputs});
    Others others;
    if (with_dweight) others.push_back(dweight);
    if (with_y) others.push_back(y);
    return others;
  };
}

}  // namespace quench::testing
