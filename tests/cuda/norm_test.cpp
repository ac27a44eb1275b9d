#include "core/ops/norm.h"

#include "tests/cuda/fused_testing.h"

namespace quench::testing {
namespace {

// Every number of threads a row, widths that fill them and widths that do not, and one row too wide for registers.
const Shape kNormShapes[] = {{1, 1},     {3, 7},     {40, 33},    {300, 64},   {70, 129},  {5, 200},   {33, 1000},
                             {9, 1032},  {20, 2048}, {11, 3584},  {13, 4096},  {5, 8192},  {3, 12288}, {2, 40000},
                             {6, 3, 32}, {9, 5, 64}, {7, 4, 128}, {40, 2, 20}, {1, 1, 128}};

Shape rows_of(const Shape& shape) {
  Shape rows;
  for (int i = 0; i + 1 < shape.rank(); ++i) rows.push_back(shape[i]);
  return rows;
}

// y is rounded twice in bf16; each rounding may go the other way.
double y_tolerance(DType dtype) {
  return dtype == DType::bf16 ? 2 * one_step(dtype) : 1e-6;
}

TEST(CudaRmsNorm, MatchesTheCpu) {
  std::uint32_t seed = 1;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : kNormShapes)
      for (const Layout layout : kLayouts) {
        SCOPED_TRACE(fmt::format("{}{} layout {}", to_string(dtype), shape.to_string(), static_cast<int>(layout)));
        Generator random(++seed);
        const Tensor x = normal(random, shape, dtype, layout), weight = random.normal({shape[-1]}, dtype);
        const Tensor y = Tensor::empty(shape, dtype), rstd = Tensor::empty(rows_of(shape), DType::f32);
        rms_norm({.x = x, .weight = weight, .y = y, .rstd = rstd});
        const Tensor gpu_y = poisoned(shape, dtype, layout), gpu_rstd = poisoned(rstd.shape(), DType::f32);
        rms_norm({.x = on_gpu(x), .weight = on_gpu(weight), .y = gpu_y, .rstd = gpu_rstd});
        EXPECT_TRUE(matches(gpu_y, y, y_tolerance(dtype), 1e-7));
        EXPECT_TRUE(matches(gpu_rstd, rstd, 3e-6, 0));
        EXPECT_TRUE(wrote_all_and_only(gpu_y));
      }
}

TEST(CudaRmsNorm, AddsTheResidualFirst) {
  std::uint32_t seed = 200;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : {Shape{9, 100}, Shape{9, 101}, Shape{50, 128}, Shape{7, 4096}, Shape{2, 40000}}) {
      SCOPED_TRACE(fmt::format("{}{}", to_string(dtype), shape.to_string()));
      Generator random(++seed);
      const Tensor x = random.normal(shape, dtype), residual = random.normal(shape, dtype);
      const Tensor weight = random.normal({shape[1]}, dtype), gpu_weight = on_gpu(weight);
      const Tensor y = Tensor::empty(shape, dtype), sum = Tensor::empty(shape, dtype),
                   rstd = Tensor::empty({shape[0]}, DType::f32);
      rms_norm({.x = x, .residual = residual, .weight = weight, .y = y, .sum = sum, .rstd = rstd});
      const Tensor gpu_y = poisoned(shape, dtype), gpu_sum = poisoned(shape, dtype),
                   gpu_rstd = poisoned(rstd.shape(), DType::f32);
      rms_norm({.x = on_gpu(x),
                .residual = on_gpu(residual),
                .weight = gpu_weight,
                .y = gpu_y,
                .sum = gpu_sum,
                .rstd = gpu_rstd});
      EXPECT_TRUE(matches(gpu_sum, sum, 0, 0));
      EXPECT_TRUE(matches(gpu_y, y, y_tolerance(dtype), 1e-7));
      EXPECT_TRUE(matches(gpu_rstd, rstd, 3e-6, 0));
      for (const bool over_x : {false, true}) {
        const Tensor a = on_gpu(x), b = on_gpu(residual), again = poisoned(shape, dtype);
        const Tensor target = over_x ? a : b;
        rms_norm({.x = a, .residual = b, .weight = gpu_weight, .y = again, .sum = target, .rstd = gpu_rstd});
        EXPECT_TRUE(same_bits(on_cpu(again), on_cpu(gpu_y)));
        EXPECT_TRUE(same_bits(on_cpu(target), on_cpu(gpu_sum)));
      }
    }
}

TEST(CudaRmsNorm, NonFiniteRowsAreSeenAndStayAlone) {
  for (const std::int64_t width : {20, 128, 2048}) {
    const Tensor x = Tensor::empty({3, width}, DType::f32), weight = Tensor::empty({width}, DType::f32);
    fill(weight, 1);
    fill(x, 2);
    x.data<float>()[width + 5] = NAN;
    x.data<float>()[2 * width + 5] = INFINITY;
    const Tensor y = poisoned({3, width}, DType::f32), rstd = poisoned({3}, DType::f32);
    rms_norm({.x = on_gpu(x), .weight = on_gpu(weight), .y = y, .rstd = rstd});
    const Tensor result = on_cpu(y);
    for (std::int64_t i = 0; i < width; ++i) EXPECT_NEAR(result.data<float>()[i], 1.0f, 1e-5f) << i;
    EXPECT_TRUE(std::isnan(result.data<float>()[width]));
    EXPECT_TRUE(std::isnan(result.data<float>()[2 * width + 5]));
    EXPECT_EQ(result.data<float>()[2 * width], 0.0f);
  }
}

struct Backward {
  Tensor dy, x, weight, rstd, dsum, dweight;
};

Backward backward_operands(std::uint32_t seed, const Shape& shape, DType dtype, Layout layout, DType sum_dtype) {
  Generator random(seed);
  Backward result{.dy = normal(random, shape, dtype, layout),
                  .x = normal(random, shape, dtype, layout),
                  .weight = random.normal({shape[-1]}, dtype),
                  .rstd = Tensor::empty(rows_of(shape), DType::f32),
                  .dsum = random.normal(shape, dtype),
                  .dweight = random.normal({shape[-1]}, sum_dtype)};
  rms_norm({.x = result.x, .weight = result.weight, .y = Tensor::empty(shape, dtype), .rstd = result.rstd});
  return result;
}

TEST(CudaRmsNormBackward, MatchesTheCpu) {
  std::uint32_t seed = 400;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : kNormShapes)
      for (const Layout layout : kLayouts) {
        const bool with_dsum = ++seed % 3 != 0, accumulate = seed % 2 == 0;
        const DType sum_dtype = seed % 4 < 2 ? DType::f32 : dtype;
        SCOPED_TRACE(fmt::format("{}{} layout {} dsum {} accumulate {} dweight {}", to_string(dtype), shape.to_string(),
                                 static_cast<int>(layout), with_dsum, accumulate, to_string(sum_dtype)));
        const Backward b = backward_operands(seed, shape, dtype, layout, sum_dtype);
        const Tensor dsum = with_dsum ? b.dsum : Tensor(), dx = Tensor::empty(shape, dtype);
        const Tensor gpu_dweight = accumulate ? on_gpu(b.dweight) : poisoned({shape[-1]}, sum_dtype);
        rms_norm_backward({.dy = b.dy,
                           .x = b.x,
                           .weight = b.weight,
                           .rstd = b.rstd,
                           .dsum = dsum,
                           .dx = dx,
                           .dweight = b.dweight,
                           .accumulate_dweight = accumulate});
        const Tensor gpu_dx = poisoned(shape, dtype, layout);
        rms_norm_backward({.dy = on_gpu(b.dy),
                           .x = on_gpu(b.x),
                           .weight = on_gpu(b.weight),
                           .rstd = on_gpu(b.rstd),
                           .dsum = on_gpu(dsum),
                           .dx = gpu_dx,
                           .dweight = gpu_dweight,
                           .accumulate_dweight = accumulate});
        // A width of 1 cancels almost exactly.
        EXPECT_TRUE(matches(gpu_dx, dx, one_step(dtype) + 1e-6, shape[-1] == 1 ? 1e-4 : 4e-6));
        EXPECT_TRUE(wrote_all_and_only(gpu_dx));
        // Both round xhat alike, so that only the order of the sum differs.
        EXPECT_TRUE(matches(gpu_dweight, b.dweight, one_step(sum_dtype) + 1e-6,
                            2e-6 * std::sqrt(static_cast<double>(b.rstd.numel()))));
      }
}

// Near real use: more rows than blocks, so that the blocks keep their shares over many rows.
TEST(CudaRmsNormBackward, ManyRows) {
  for (const Shape& shape : {Shape{450, 4096}, Shape{1001, 2048}, Shape{1001, 8, 128}, Shape{2000, 100}}) {
    SCOPED_TRACE(shape.to_string());
    const Backward b = backward_operands(700, shape, DType::bf16, Layout::contiguous, DType::f32);
    const Tensor dx = Tensor::empty(shape, DType::bf16);
    rms_norm_backward({.dy = b.dy, .x = b.x, .weight = b.weight, .rstd = b.rstd, .dx = dx, .dweight = b.dweight});
    const Tensor dy = on_gpu(b.dy), x = on_gpu(b.x), weight = on_gpu(b.weight), rstd = on_gpu(b.rstd);
    Tensor first_dx, first_dweight;
    for (int run = 0; run < 3; ++run) {
      const Tensor gpu_dx = poisoned(shape, DType::bf16), gpu_dweight = poisoned({shape[-1]}, DType::f32);
      rms_norm_backward({.dy = dy, .x = x, .weight = weight, .rstd = rstd, .dx = gpu_dx, .dweight = gpu_dweight});
      if (run == 0) {
        first_dx = on_cpu(gpu_dx);
        first_dweight = on_cpu(gpu_dweight);
        EXPECT_TRUE(matches(gpu_dx, dx, one_step(DType::bf16), 4e-6));
        EXPECT_TRUE(matches(gpu_dweight, b.dweight, 2e-6, 2e-6 * std::sqrt(static_cast<double>(b.rstd.numel()))));
      }
      EXPECT_TRUE(same_bits(on_cpu(gpu_dx), first_dx));
      EXPECT_TRUE(same_bits(on_cpu(gpu_dweight), first_dweight));
    }
  }
}

TEST(CudaRmsNormBackward, MayOverwriteItsInputs) {
  for (const Shape& shape : {Shape{20, 50}, Shape{20, 64}, Shape{300, 4096}, Shape{100, 4100}}) {
    SCOPED_TRACE(shape.to_string());
    const Backward b = backward_operands(800, shape, DType::f32, Layout::contiguous, DType::f32);
    const Tensor x = on_gpu(b.x), weight = on_gpu(b.weight), rstd = on_gpu(b.rstd), dx = poisoned(shape, DType::f32);
    const Tensor over_dy = on_gpu(b.dy), over_dsum = on_gpu(b.dsum), dweight = poisoned({shape[1]}, DType::f32);
    const auto run = [&](const Tensor& dy, const Tensor& dsum, const Tensor& target) {
      rms_norm_backward(
          {.dy = dy, .x = x, .weight = weight, .rstd = rstd, .dsum = dsum, .dx = target, .dweight = dweight});
      return on_cpu(dweight);
    };
    const Tensor first = run(on_gpu(b.dy), on_gpu(b.dsum), dx);
    EXPECT_TRUE(same_bits(run(over_dy, on_gpu(b.dsum), over_dy), first));
    EXPECT_TRUE(same_bits(on_cpu(over_dy), on_cpu(dx)));
    EXPECT_TRUE(same_bits(run(on_gpu(b.dy), over_dsum, over_dsum), first));
    EXPECT_TRUE(same_bits(on_cpu(over_dsum), on_cpu(dx)));
  }
}

TEST(CudaRmsNormBackward, GivesTheForwardResultOnTheWay) {
  std::uint32_t seed = 950;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : {Shape{9, 101}, Shape{50, 128}, Shape{30, 4096}, Shape{2, 40000}, Shape{7, 4, 128}})
      for (const Layout layout : kLayouts) {
        SCOPED_TRACE(fmt::format("{}{} layout {}", to_string(dtype), shape.to_string(), static_cast<int>(layout)));
        const Backward b = backward_operands(++seed, shape, dtype, layout, DType::f32);
        const Tensor x = on_gpu(b.x), weight = on_gpu(b.weight), rstd = poisoned(rows_of(shape), DType::f32),
                     y = poisoned(shape, dtype), again = poisoned(shape, dtype, layout), dy = on_gpu(b.dy);
        rms_norm({.x = x, .weight = weight, .y = y, .rstd = rstd});
        const Tensor dx = poisoned(shape, dtype), in_place = on_gpu(b.dy);
        rms_norm_backward({.dy = dy, .x = x, .weight = weight, .rstd = rstd, .dx = dx});
        rms_norm_backward({.dy = in_place, .x = x, .weight = weight, .rstd = rstd, .dx = in_place, .y = again});
        EXPECT_EQ(values(on_cpu(again)), values(on_cpu(y)));
        EXPECT_TRUE(wrote_all_and_only(again));
        EXPECT_EQ(values(on_cpu(in_place)), values(on_cpu(dx)));
      }
}

TEST(CudaRmsNormBackward, DweightMayBeUnwanted) {
  const Shape shape{30, 256};
  const Backward b = backward_operands(900, shape, DType::bf16, Layout::contiguous, DType::f32);
  const Tensor with = poisoned(shape, DType::bf16), without = poisoned(shape, DType::bf16);
  const RmsNormBackwardArgs args{
      .dy = on_gpu(b.dy), .x = on_gpu(b.x), .weight = on_gpu(b.weight), .rstd = on_gpu(b.rstd), .dx = without};
  rms_norm_backward(args);
  RmsNormBackwardArgs wanted = args;
  wanted.dx = with;
  wanted.dweight = poisoned({256}, DType::f32);
  rms_norm_backward(wanted);
  EXPECT_TRUE(wrote_all_and_only(without));
  EXPECT_TRUE(same_bits(on_cpu(with), on_cpu(without)));
}

TEST(CudaRmsNorm, EmptyInputs) {
  const Tensor none = Tensor::empty({0, 8}, DType::f32, kGpu), weight = Tensor::zeros({8}, DType::f32, kGpu),
               rstd = Tensor::empty({0}, DType::f32, kGpu), dweight = poisoned({8}, DType::f32);
  rms_norm({.x = none, .weight = weight, .y = none, .rstd = rstd});
  rms_norm_backward({.dy = none, .x = none, .weight = weight, .rstd = rstd, .dx = none, .dweight = dweight});
  EXPECT_EQ(values(on_cpu(dweight)), std::vector<double>(8, 0.0));
}

}  // namespace
}  // namespace quench::testing
