// Quantization outputs of gated units, and what all quantization outputs share.

#include "tests/cuda/quantize/quant_outputs_testing.h"

namespace quench::testing {
namespace {

TEST(CudaQuantOutputs, GatedUnitsInEveryCombination) {
  std::uint32_t seed = 0;
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const Shape& shape : {Shape{1, 8}, Shape{5, 3}, Shape{300, 24}, Shape{37, 100}, Shape{290, 1032}})  // [N,I]
      for (const double special : kSpecials) {
        const Shape whole{shape[0], 2 * shape[1]};
        const Tensor gate_up = operand(++seed, whole, dtype, 3.0, special), dout = operand(++seed, shape, dtype);
        for (const GatedActivation activation : kGatedActivations)
          for (const Parts& parts : all_parts(seed)) {
            check(shape, dtype, parts, forward(gate_up, activation));
            check(whole, dtype, parts, backward(dout, gate_up, parts.amax, activation));
          }
      }
}

// One to four pieces a thread, rows of whole blocks and not, up to the widest that fit in shared memory, and beyond.
TEST(CudaQuantOutputs, GatedUnitsAtTypicalWidths) {
  std::uint32_t seed = 100;
  for (const std::int64_t width : {4096, 4104, 6912, 8192, 10240, 14336, 18944, 19344, 19352, 29024, 29032}) {
    const Shape shape{width == 4096 ? 600 : width < 20000 ? 300 : 140, width}, whole{shape[0], 2 * width};
    const Tensor gate_up = operand(++seed, whole, DType::bf16, 3.0), dout = operand(++seed, shape, DType::bf16);
    for (const GatedActivation activation : kGatedActivations)
      for (const Parts& parts : recipe_parts()) {
        check(shape, DType::bf16, parts, forward(gate_up, activation));
        check(whole, DType::bf16, parts, backward(dout, gate_up, parts.rows, activation));
      }
  }
}

TEST(CudaQuantOutputs, GatedUnitsOverTheirInput) {
  for (const GatedActivation activation : kGatedActivations)
    for (const std::int64_t width : {24, 8192}) {
      const Shape shape{280, width}, whole{280, 2 * width};
      const Tensor gate_up = operand(150, whole, DType::bf16, 3.0), dout = operand(151, shape, DType::bf16),
                   expected = poison(whole, DType::bf16);
      swiglu_backward({.dout = dout, .gate_up = gate_up, .dgate_up = expected, .activation = activation});
      for (const Parts& parts : recipe_parts()) {
        SCOPED_TRACE(describe(parts));
        const Tensor in_place = gate_up.clone();
        const QuantOutputs quant_outputs = make_quant_outputs(parts, whole, DType::bf16);
        swiglu_backward({dout, in_place, in_place, {}, quant_outputs, {}, activation});
        EXPECT_TRUE(same(in_place, expected));
        expect_filled(quant_outputs, expected);
      }
    }
}

TEST(CudaQuantOutputs, CodesThatAreNotAligned) {
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

TEST(CudaQuantOutputs, MaximaRiseAndNeverFall) {
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
        QuantOutputs quant_outputs = make_quant_outputs({.amax = true, .column_amax = by_rows}, shape, DType::bf16);
        quant_outputs.amax.copy_from(Tensor::from_values<float>({}, std::array{before}));
        if (by_rows) quant_outputs.column_amax.copy_from(earlier);
        op(result, quant_outputs);
        const auto raised = [](float old, float now) { return std::isnan(old) ? old : std::max(old, now); };
        const auto matches = [&](float got, float expected) {
          return std::isnan(expected) ? std::isnan(got) : got == expected;
        };
        const Tensor most = on_cpu(amax(result, Granularity::tensor)), got = on_cpu(quant_outputs.amax);
        EXPECT_TRUE(matches(*got.data<float>(), raised(before, *most.data<float>())));
        if (!by_rows) continue;
        const Tensor columns = on_cpu(amax(result, Granularity::column)), own = on_cpu(quant_outputs.column_amax);
        for (std::int64_t c = 0; c < 2048; ++c)
          ASSERT_TRUE(matches(own.data<float>()[c], raised(earlier.data<float>()[c], columns.data<float>()[c]))) << c;
      }
}

// Near real use: 2^31 elements and more cannot be had in a test, thousands of rows can.
TEST(CudaQuantOutputs, LargeResults) {
  const Shape shape{4099, 14336}, whole{4099, 28672}, hidden{8195, 4096};
  const Tensor gate_up = operand(700, whole, DType::bf16, 3.0), dout = operand(701, shape, DType::bf16);
  const Norm n = norm_operands(702, hidden, DType::bf16);
  const Parts parts{.amax = true, .rows = true, .column_amax = true};
  const auto check_once = [&](const Shape& result_shape, const Op& op) {
    const Tensor result = Tensor::empty(result_shape, DType::bf16, kGpu);
    const QuantOutputs quant_outputs = make_quant_outputs(parts, result_shape, DType::bf16);
    op(result, quant_outputs);
    expect_filled(quant_outputs, result);
  };
  check_once(shape, forward(gate_up));
  check_once(whole, backward(dout, gate_up, false));
  check_once(hidden, forward(n, true));
  check_once(hidden, backward(n, true, true, false));
}

TEST(CudaQuantOutputs, EmptyResults) {
  for (const Shape& shape : {Shape{0, 64}, Shape{4, 0}}) {
    const Tensor half = Tensor::empty(shape, DType::bf16, kGpu),
                 whole = Tensor::empty({shape[0], 2 * shape[1]}, DType::bf16, kGpu);
    const QuantOutputs quant_outputs =
        make_quant_outputs({.amax = true, .rows = true, .column_amax = true}, shape, DType::bf16);
    swiglu({whole, half, quant_outputs});
    expect_filled(quant_outputs, half);
  }
}

}  // namespace
}  // namespace quench::testing
