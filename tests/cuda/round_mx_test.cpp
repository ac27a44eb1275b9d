// Rounding to MX and NVFP4 and back in one pass against the cast and its inverse on the CPU.

#include "core/ops/quantize/round_mx.h"
#include "core/ops/quantize/quantize.h"
#include "core/ops/quantize/round_nvfp4.h"
#include "tests/cuda/quantize_testing.h"

namespace quench::testing {
namespace {

TEST(CudaRoundMx, IsTheCastAndItsInverse) {
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

TEST(CudaRoundNvfp4, IsTheCastAndItsInverse) {
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

}  // namespace
}  // namespace quench::testing
