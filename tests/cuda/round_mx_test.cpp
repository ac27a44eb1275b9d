// Rounding to MX and back in one pass against the cast and its inverse on the CPU.

#include "core/ops/quantize/round_mx.h"
#include "core/ops/quantize/quantize.h"
#include "tests/cuda/quantize_testing.h"

namespace quench::testing {
namespace {

TEST(CudaRoundMx, IsTheCastAndItsInverse) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const MxScaleMode mode : {MxScaleMode::rceil, MxScaleMode::floor, MxScaleMode::ceil, MxScaleMode::even})
      for (const Orientation orientation : {Orientation::natural, Orientation::transposed})
        for (const Shape& shape : {Shape{64, 96}, Shape{3, 320, 64}, Shape{2, 32, 2080}})
          for (const std::int64_t shift : {0, 1}) {
            SCOPED_TRACE(fmt::format("{} {} {} {}{}", to_string(dtype), to_string(mode), shape.to_string(),
                                     orientation == Orientation::natural ? "columns" : "rows",
                                     shift ? ", shifted" : ""));
            const Tensor x = input(shape, dtype, shift, 7);
            spoil(x, 777);
            const Tensor expected =
                dequantize(quantize_mx(x.clone(), {.mode = mode, .orientation = orientation}), dtype);
            const Tensor device = Tensor::empty({shape.numel() + shift}, dtype, kGpu);
            Tensor gpu = device.narrow(0, shift, shape.numel()).view(shape);
            gpu.copy_from(x.clone());
            const Tensor out = Tensor::empty(shape, dtype, kGpu);
            round_mx({.x = gpu, .out = out, .mode = mode, .orientation = orientation});
            EXPECT_TRUE(equal(out, expected));
            round_mx({.x = gpu, .out = gpu, .mode = mode, .orientation = orientation});
            EXPECT_TRUE(equal(gpu.clone(), expected)) << "in place";
          }
}

}  // namespace
}  // namespace quench::testing
