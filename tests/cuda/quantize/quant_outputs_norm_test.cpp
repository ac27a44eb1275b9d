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

// Codes of dx and of the recomputed y under given scales, with and without values: rows of one CTA and others, blocks
// of rows that are whole and not, more rows than CTAs.
TEST(CudaQuantOutputs, RmsNormBackwardCodesUnderGivenScales) {
  std::uint32_t seed = 3600;
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const Shape& shape : {Shape{1, 1},
                               {5, 33},
                               {48, 1032},
                               {33, 1032},
                               {16, 2048},
                               {1040, 2056},
                               {2000, 3584},
                               {4096, 4096},
                               {304, 8192},
                               {160, 16384},
                               {16, 40000}})
      for (const bool with_dsum : {false, true}) {
        SCOPED_TRACE(fmt::format("{}{} dsum {}", to_string(dtype), shape.to_string(), with_dsum));
        const Norm n = norm_operands(seed += 4, shape, dtype);
        const Tensor dx = poison(shape, dtype), y = poison(shape, dtype), dweight = poison({shape[1]}, DType::f32);
        const RmsNormBackwardArgs plain{.dy = n.dy,
                                        .x = n.x,
                                        .weight = n.weight,
                                        .rstd = n.rstd,
                                        .dsum = with_dsum ? n.residual : Tensor(),
                                        .dx = dx,
                                        .dweight = dweight,
                                        .y = y};
        rms_norm_backward(plain);
        const Tensor most = amax(dx, Granularity::tensor), dx_scale = float8_scale(most, ElementFormat::e5m2, false),
                     y_scale = float8_scale(amax(y, Granularity::tensor), ElementFormat::e4m3, false);
        const Float8Pair of_dx = cast_float8_pair(dx, dx_scale, ElementFormat::e5m2),
                         of_y = cast_float8_pair(y, y_scale, ElementFormat::e4m3);
        const auto like = [&](const QuantTensor& codes) {
          return QuantTensor(codes.format(), shape, dtype, poison(codes.payload().shape(), codes.payload().dtype()),
                             codes.scales());
        };
        // Bits: natural and transposed codes of dx, transposed codes of y, value of y, dx over its operand.
        for (const unsigned parts : {0b11111u, 0b00011u, 0b00111u, 0b10100u, 0b01100u, 0b00001u, 0b00110u}) {
          SCOPED_TRACE(parts);
          RmsNormBackwardArgs args = plain;
          args.dy = n.dy.clone();
          args.dx = (parts & 16u) != 0 ? args.dy : poison(shape, dtype);
          args.dweight = poison({shape[1]}, DType::f32);
          args.y = (parts & 8u) != 0 ? poison(shape, dtype) : Tensor();
          args.quant_outputs.amax = Tensor::zeros({}, DType::f32, kGpu);
          if ((parts & 1u) != 0) args.quant_outputs.codes = like(of_dx.natural);
          if ((parts & 2u) != 0) args.quant_outputs.transposed_codes = like(of_dx.transposed);
          if ((parts & 4u) != 0) args.y_codes.transposed_codes = like(of_y.transposed);
          rms_norm_backward(args);
          EXPECT_TRUE(same(args.dx, dx));
          EXPECT_TRUE(same(args.dweight, dweight));
          EXPECT_TRUE(same(args.quant_outputs.amax, most));
          if (args.y.defined()) {
            EXPECT_TRUE(same(args.y, y));
          }
          const auto expect_codes = [](const QuantTensor& codes, const QuantTensor& expected) {
            if (codes.defined()) {
              EXPECT_TRUE(same(codes.payload(), expected.payload()));
            }
          };
          expect_codes(args.quant_outputs.codes, of_dx.natural);
          expect_codes(args.quant_outputs.transposed_codes, of_dx.transposed);
          expect_codes(args.y_codes.transposed_codes, of_y.transposed);
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
