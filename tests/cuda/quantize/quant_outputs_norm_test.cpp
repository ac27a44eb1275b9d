// Quantization outputs of RMSNorm, forward and backward.

#include "tests/cuda/quantize/quant_outputs_testing.h"

namespace quench::testing {
namespace {

TEST(CudaQuantOutputs, RmsNormEveryCombination) {
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
TEST(CudaQuantOutputs, RmsNormAtTypicalWidths) {
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

// Gemma's form (weight + 1, one rounding), at the widths of Gemma 3 1B, 4B and 12B and one of many threads.
TEST(CudaQuantOutputs, RmsNormWithAWeightOffset) {
  std::uint32_t seed = 340;
  for (const std::int64_t width : {64, 1152, 2560, 3840, 8192}) {
    const Shape shape{700, width};
    const Norm n = norm_operands(seed += 4, shape, DType::bf16, 0.0, {1e-6f, 1.0f, true});
    for (const Parts& parts : all_parts(seed)) {
      check(shape, DType::bf16, parts, forward(n, parts.rows));
      check(shape, DType::bf16, parts, backward(n, parts.rows, true, parts.amax));
    }
  }
}

// Every size of a group of threads with its narrowest and widest rows; one row, fewer rows than SMs, and
// groups that take one row more than others.
TEST(CudaQuantOutputs, RmsNormGroupsOfThreads) {
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

// Codes under a given scale, with and without the result.
TEST(CudaQuantOutputs, RmsNormCodesUnderAGivenScale) {
  std::uint32_t seed = 360;
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const Shape& shape :
         {Shape{1, 1}, {5, 33}, {40, 64}, {70, 256}, {33, 1032}, {500, 4096}, {40, 16384}, {8, 40000}})
      for (const bool with_residual : {false, true}) {
        SCOPED_TRACE(fmt::format("{}{} residual {}", to_string(dtype), shape.to_string(), with_residual));
        const Norm n = norm_operands(seed += 4, shape, dtype);
        RmsNormArgs args{.x = n.x,
                         .weight = n.weight,
                         .y = poison(shape, dtype),
                         .rstd = Tensor::empty({shape[0]}, DType::f32, kGpu)};
        if (with_residual) {
          args.residual = n.residual;
          args.sum = poison(shape, dtype);
        }
        rms_norm(args);
        const Tensor y = args.y, most = amax(y, Granularity::tensor);
        const Tensor scale = float8_scale(most, ElementFormat::e4m3, false);
        const QuantTensor expected = cast_float8(y, scale, ElementFormat::e4m3, Granularity::tensor);
        for (const bool values : {false, true}) {
          args.y = values ? poison(shape, dtype) : Tensor();
          args.quant_outputs = {.amax = Tensor::zeros({}, DType::f32, kGpu),
                                .codes = QuantTensor(expected.format(), shape, dtype,
                                                     poison(shape, payload_dtype(ElementFormat::e4m3)), scale)};
          rms_norm(args);
          EXPECT_TRUE(same(args.quant_outputs.codes.payload(), expected.payload()));
          EXPECT_TRUE(same(args.quant_outputs.amax, most));
          if (!values) continue;
          EXPECT_TRUE(same(args.y, y));
        }
      }
}

// Rows apart in a larger matrix, in whole pieces and not.
TEST(CudaQuantOutputs, RmsNormOfStridedRows) {
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
TEST(CudaQuantOutputs, RmsNormOfTinyNumbers) {
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

TEST(CudaQuantOutputs, RmsNormSumOverItsInput) {
  const Shape shape{700, 3584};
  const Norm n = norm_operands(396, shape, DType::bf16);
  const Tensor expected = poison(shape, DType::bf16), expected_sum = poison(shape, DType::bf16);
  rms_norm({.x = n.x, .residual = n.residual, .weight = n.weight, .y = expected, .sum = expected_sum, .rstd = n.rstd});
  for (const bool over_x : {false, true}) {
    const Tensor x = n.x.clone(), residual = n.residual.clone(), sum = over_x ? x : residual,
                 y = poison(shape, DType::bf16);
    const QuantOutputs quant_outputs = make_quant_outputs(recipe_parts().back(), shape, DType::bf16);
    rms_norm({.x = x,
              .residual = residual,
              .weight = n.weight,
              .y = y,
              .sum = sum,
              .rstd = n.rstd,
              .quant_outputs = quant_outputs});
    EXPECT_TRUE(same(y, expected));
    EXPECT_TRUE(same(sum, expected_sum));
    expect_filled(quant_outputs, expected);
  }
}

TEST(CudaQuantOutputs, RmsNormOverItsInput) {
  for (const std::int64_t width : {1000, 4096}) {
    const Shape shape{700, width};
    const Norm n = norm_operands(400, shape, DType::bf16);
    const Tensor expected = poison(shape, DType::bf16);
    rms_norm_backward({.dy = n.dy, .x = n.x, .weight = n.weight, .rstd = n.rstd, .dsum = n.residual, .dx = expected});
    for (const Parts& parts : recipe_parts())
      for (const bool over_dy : {false, true}) {
        SCOPED_TRACE(describe(parts));
        const Tensor dy = n.dy.clone(), dsum = n.residual.clone(), dx = over_dy ? dy : dsum;
        const QuantOutputs quant_outputs = make_quant_outputs(parts, shape, DType::bf16);
        rms_norm_backward({.dy = dy,
                           .x = n.x,
                           .weight = n.weight,
                           .rstd = n.rstd,
                           .dsum = dsum,
                           .dx = dx,
                           .quant_outputs = quant_outputs});
        EXPECT_TRUE(same(dx, expected));
        expect_filled(quant_outputs, expected);
      }
  }
}

}  // namespace
}  // namespace quench::testing
