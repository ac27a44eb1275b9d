#pragma once
// Inputs for the tests of quant_error on both devices, and the definition of its result.

#include "core/ops/quantize/quant_error.h"
#include "core/ops/quantize/quantize.h"
#include "tests/core/ops/op_testing.h"

namespace quench::testing {

struct QuantErrorCase {
  std::int64_t rows, columns;
  DType dtype = DType::bf16;
  ElementFormat element = ElementFormat::e4m3;
  Granularity granularity = Granularity::tensor;
  bool unaligned = false;
};

inline std::string describe(const QuantErrorCase& c) {
  return fmt::format("[{}, {}] {} as {} by {}{}", c.rows, c.columns, to_string(c.dtype), to_string(c.element),
                     to_string(c.granularity), c.unaligned ? ", unaligned" : "");
}

struct QuantErrorInput {
  Tensor x;
  QuantTensor q;
};

// On the CPU, with scales that are not those of the data: some elements saturate and some vanish.
inline QuantErrorInput quant_error_input(Generator& random, const QuantErrorCase& c) {
  const Shape shape{c.rows, c.columns};
  const Tensor x = c.unaligned ? random.normal_view(shape, c.dtype, 0) : random.normal(shape, c.dtype);
  for (std::int64_t i = 0; i < x.numel(); ++i)
    set_element(x, i, i % 11 == 0 ? 0.0 : std::ldexp(get_element(x, i), static_cast<int>(random.between(-18, 3))));
  const QuantFormat format{.element = c.element, .granularity = c.granularity};
  const Tensor scales = Tensor::empty(format.scales_shape(shape), DType::f32);
  const double max = c.element == ElementFormat::e4m3 ? 448 : 57344;
  for (std::int64_t i = 0; i < scales.numel(); ++i)
    scales.data<float>()[i] = static_cast<float>(max / 10 * (1 + 0.37 * static_cast<double>(random.below(5))));
  const QuantTensor q = cast_float8(x.clone(), scales, c.element, c.granularity);
  if (!c.unaligned) return {x, q};
  const Tensor payload =
      Tensor::empty({q.payload().numel() + 1}, q.payload().dtype()).strided(shape, shape.contiguous_strides(), 1);
  std::memcpy(payload.raw_data(), q.payload().raw_data(), q.payload().nbytes());
  return {x, QuantTensor(format, shape, c.dtype, payload, scales)};
}

inline QuantError quant_error_reference(const Tensor& x, const QuantTensor& q) {
  QuantError sum;
  const auto* codes = static_cast<const std::uint8_t*>(q.payload().raw_data());
  const bool e4m3 = q.format().element == ElementFormat::e4m3;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const std::int64_t row = i / x.size(1), column = i % x.size(1);
    const Granularity by = q.format().granularity;
    const float scale = q.scales().data<float>()[by == Granularity::tensor ? 0 : by == Granularity::row ? row : column];
    const auto value = static_cast<float>(get_element(x, i));
    const float code = e4m3 ? E4m3::decode(codes[i]) : E5m2::decode(codes[i]);
    const double lost = static_cast<double>(value - code / scale);
    sum.signal += static_cast<double>(value) * value;
    sum.noise += lost * lost;
    // Beyond the middle between the largest value and the next of the endless grid, 480 or 65536; the middle itself
    // goes to the even one of them.
    sum.saturated += e4m3 ? std::abs(value * scale) > 464.0f : std::abs(value * scale) >= 61440.0f;
    sum.underflows += value != 0.0f && std::isfinite(value) && code == 0.0f;
    if (std::abs(value) > sum.most || std::isnan(value)) sum.most = std::abs(value);
  }
  return sum;
}

inline bool same(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

inline void expect_same_error(const QuantError& actual, const QuantError& expected) {
  const auto near = [](double a, double e) { return same(a, e) || std::abs(a - e) <= 1e-12 * std::abs(e); };
  EXPECT_TRUE(near(actual.signal, expected.signal)) << actual.signal << ", expected " << expected.signal;
  EXPECT_TRUE(near(actual.noise, expected.noise)) << actual.noise << ", expected " << expected.noise;
  EXPECT_EQ(actual.saturated, expected.saturated);
  EXPECT_EQ(actual.underflows, expected.underflows);
  EXPECT_TRUE(same(actual.most, expected.most)) << actual.most << ", expected " << expected.most;
}

// Every dtype, format and granularity in shapes that end within a group, a round and a chunk of the kernels.
inline std::vector<QuantErrorCase> quant_error_cases() {
  std::vector<QuantErrorCase> cases;
  for (const auto& [rows, columns] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 5}, {7, 64}, {70000, 1}, {1, 70001}, {129, 1031}, {256, 512}})
    for (const DType dtype : {DType::bf16, DType::f32})
      for (const ElementFormat element : {ElementFormat::e4m3, ElementFormat::e5m2})
        for (const Granularity granularity : {Granularity::tensor, Granularity::row, Granularity::column})
          for (const bool unaligned : {false, true})
            cases.push_back({rows, columns, dtype, element, granularity, unaligned});
  return cases;
}

}  // namespace quench::testing
