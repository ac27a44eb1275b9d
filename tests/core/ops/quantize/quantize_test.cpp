#include "core/ops/quantize/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <vector>

#include "tests/core/ops/quantize/quantize_inputs.h"

namespace quench {
namespace {

using namespace quench::testing;

// Large enough for several threads; the tile of a thread must not show in the bits.
TEST(Quantize, BitsDoNotDependOnTheNumberOfThreads) {
  const Tensor x = random_tensor<bfloat16>({192, 320});
  const auto everything = [&] {
    std::vector<int> all;
    const auto add = [&](const QuantTensor& q) {
      for (const Tensor& t : {q.payload(), q.scales(), dequantize(q, DType::bf16)}) {
        const std::vector<int> part = byte_values(t);
        all.insert(all.end(), part.begin(), part.end());
      }
    };
    for (const Granularity granularity : {Granularity::tensor, Granularity::row, Granularity::column})
      add(quantize_float8(x, {.granularity = granularity}));
    add(quantize_mx(x, {}));
    add(quantize_mx(x, {.element = ElementFormat::e2m1, .orientation = Orientation::transposed}));
    add(quantize_nvfp4(x, nvfp4_global_scale(amax(x, Granularity::tensor))));
    return all;
  };
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const std::vector<int> one = everything();
  omp_set_num_threads(3);
  const std::vector<int> three = everything();
  omp_set_num_threads(threads);
  EXPECT_EQ(one, three);
}

TEST(Quantize, EmptyTensorsPassThrough) {
  for (const Granularity granularity : {Granularity::tensor, Granularity::row, Granularity::column})
    EXPECT_EQ(dequantize(quantize_float8(Tensor::empty({0, 64}, DType::f32), {.granularity = granularity}), DType::f32)
                  .shape(),
              (Shape{0, 64}));
  EXPECT_EQ(dequantize(quantize_mx(Tensor::empty({0, 64}, DType::f32), {}), DType::f32).shape(), (Shape{0, 64}));
  EXPECT_EQ(dequantize(quantize_nvfp4(Tensor::empty({0, 64}, DType::f32)), DType::bf16).shape(), (Shape{0, 64}));
}

TEST(Quantize, MetaDeviceHasShapesAndNoValues) {
  const Tensor x = Tensor::empty({64, 96}, DType::bf16, {DeviceType::meta, 0});
  const QuantTensor rows = quantize_float8(x, {.granularity = Granularity::row});
  EXPECT_TRUE(rows.device().is_meta());
  EXPECT_EQ(rows.scales().shape(), (Shape{64, 1}));
  const QuantTensor blocks = quantize_mx(x, {.element = ElementFormat::e2m1, .orientation = Orientation::transposed});
  EXPECT_EQ(blocks.payload().nbytes(), std::size_t{96 * 64 / 2});
  EXPECT_EQ(dequantize(blocks, DType::bf16).shape(), (Shape{64, 96}));
}

}  // namespace
}  // namespace quench
