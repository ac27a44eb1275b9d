// Rounding to MX and NVFP4 and back in one pass against the cast and its inverse on the CPU.

#include "core/ops/quantize/round_mx.h"
#include "core/ops/experts/round_rows_mx.h"
#include "core/ops/quantize/quantize.h"
#include "core/ops/quantize/round_nvfp4.h"
#include "tests/cuda/quantize/quantize_testing.h"

namespace quench::testing {
namespace {

TEST(CudaRoundMx, MatchesCastAndDequantization) {
  for (const auto& [dtype, element] : {std::pair{DType::f32, ElementFormat::e4m3},
                                       {DType::bf16, ElementFormat::e4m3},
                                       {DType::f32, ElementFormat::e2m1},
                                       {DType::bf16, ElementFormat::e2m1}})
    for (const MxScaleMode mode : {MxScaleMode::rceil, MxScaleMode::floor, MxScaleMode::ceil, MxScaleMode::even})
      for (const Orientation orientation : {Orientation::natural, Orientation::transposed})
        for (const Shape& shape : {Shape{64, 96}, Shape{3, 320, 64}, Shape{2, 32, 2080}})
          for (const std::int64_t shift : {0, 1}) {
            SCOPED_TRACE(fmt::format("{} {} {} {} {}{}", to_string(dtype), to_string(element), to_string(mode),
                                     shape.to_string(), orientation == Orientation::natural ? "columns" : "rows",
                                     shift ? ", shifted" : ""));
            const Tensor x = input(shape, dtype, shift, 7);
            spoil(x, 777);
            const Tensor expected = dequantize(
                quantize_mx(x.clone(), {.element = element, .mode = mode, .orientation = orientation}), dtype);
            const Tensor device = Tensor::empty({shape.numel() + shift}, dtype, kGpu);
            Tensor gpu = device.narrow(0, shift, shape.numel()).view(shape);
            gpu.copy_from(x.clone());
            const Tensor out = Tensor::empty(shape, dtype, kGpu);
            round_mx({.x = gpu, .out = out, .element = element, .mode = mode, .orientation = orientation});
            EXPECT_TRUE(equal(out, expected));
            round_mx({.x = gpu, .out = gpu, .element = element, .mode = mode, .orientation = orientation});
            EXPECT_TRUE(equal(gpu.clone(), expected)) << "in place";
          }
}

TEST(CudaRoundNvfp4, MatchesCastAndDequantization) {
  std::uint64_t seed = 0;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool two_levels : {false, true})
      for (const Shape& shape : {Shape{16}, Shape{64, 96}, Shape{3, 320, 64}, Shape{5, 2080}})
        for (const std::int64_t shift : {0, 1})
          for (const std::int64_t spoiled : {0, 777}) {
            SCOPED_TRACE(fmt::format("{} {} levels {} shift {} spoiled {}", to_string(dtype), two_levels ? 2 : 1,
                                     shape.to_string(), shift, spoiled));
            const Tensor x = input(shape, dtype, shift, ++seed);
            // The scale is that of the values before: what spoils a block must not spoil all.
            const Tensor global = two_levels ? nvfp4_global_scale(amax(x, Granularity::tensor)) : Tensor();
            if (spoiled > 0) spoil(x, spoiled);
            const Tensor expected = dequantize(quantize_nvfp4(x, global), dtype);
            const Tensor gpu = on_gpu(x), gpu_global = on_gpu(global), out = Tensor::empty(shape, dtype, kGpu);
            round_nvfp4({.x = gpu, .global_scale = gpu_global, .out = out});
            EXPECT_TRUE(equal(out, expected));
            round_nvfp4({.x = gpu, .global_scale = gpu_global, .out = gpu});
            EXPECT_TRUE(equal(gpu.clone(), expected)) << "in place";
          }
}

// Rows of experts in both forms at once; strips of the kernel are 512 columns of bf16 or 256 of f32.
TEST(CudaRoundMx, ExpertRowsInBothFormsMatchCpu) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const MxScaleMode mode : {MxScaleMode::rceil, MxScaleMode::floor, MxScaleMode::ceil, MxScaleMode::even})
      for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{32, 32}, {96, 544}, {320, 1024}})
        for (const std::int64_t choices : {0, 1, 3})
          for (const std::int64_t shift : {0, 1}) {
            SCOPED_TRACE(fmt::format("{} {} {}x{} choices {}{}", to_string(dtype), to_string(mode), rows, columns,
                                     choices, shift ? ", shifted" : ""));
            const std::int64_t tokens = choices > 0 ? 17 : rows;
            const Shape shape{rows, columns}, of_x{tokens, columns};
            const Tensor x = input(of_x, dtype, shift, 7);
            spoil(x, 777);
            Tensor pairs;
            if (choices > 0) {
              Generator random(5);
              pairs = random.integers(rows, tokens * choices);
              for (std::int64_t r = 3; r < rows; r += 11) pairs.data<std::int32_t>()[r] = -1;
            }
            const auto shifted = [&](const Shape& s) {
              return Tensor::empty({s.numel() + shift}, dtype, kGpu).narrow(0, shift, s.numel()).view(s);
            };
            const Tensor columns_form = Tensor::empty(shape, dtype), rows_form = Tensor::empty(shape, dtype);
            const Tensor on_host = x.clone();
            round_rows_mx(
                {.rows = {.x = on_host, .ends = {}, .pairs = pairs, .choices = std::max<std::int64_t>(choices, 1)},
                 .rowwise = columns_form,
                 .columnwise = rows_form,
                 .mode = mode});
            Tensor gpu = shifted(of_x);
            gpu.copy_from(x.clone());
            const GroupRows of_gpu{
                .x = gpu, .ends = {}, .pairs = on_gpu(pairs), .choices = std::max<std::int64_t>(choices, 1)};
            const Tensor gpu_columns = shifted(shape), gpu_rows = shifted(shape);
            round_rows_mx({.rows = of_gpu, .rowwise = gpu_columns, .columnwise = gpu_rows, .mode = mode});
            EXPECT_TRUE(equal(gpu_columns, columns_form));
            EXPECT_TRUE(equal(gpu_rows, rows_form));
            const Tensor one = shifted(shape);
            round_rows_mx({.rows = of_gpu, .rowwise = {}, .columnwise = one, .mode = mode});
            EXPECT_TRUE(equal(one, rows_form)) << "rows alone";
            round_rows_mx({.rows = of_gpu, .rowwise = one, .columnwise = {}, .mode = mode});
            EXPECT_TRUE(equal(one, columns_form)) << "columns alone";
            if (choices > 0) continue;
            round_rows_mx({.rows = of_gpu, .rowwise = gpu, .columnwise = one, .mode = mode});
            EXPECT_TRUE(equal(gpu, columns_form)) << "in place";
            EXPECT_TRUE(equal(one, rows_form)) << "beside a form in place";
          }
}

}  // namespace
}  // namespace quench::testing
