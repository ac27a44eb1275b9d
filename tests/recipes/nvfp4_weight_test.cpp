// NVFP4 weights for block-scaled GEMMs, on the CPU: the stored scales, and GEMMs against the dequantized weight.

#include "recipes/nvfp4_weight.h"

#include <array>

#include "core/ops/elementwise.h"
#include "core/ops/packed_linear.h"
#include "core/ops/quantize/quantize.h"
#include "tests/recipes/float8_testing.h"
#include "tests/recipes/recipe_testing.h"

namespace quench::recipes {
namespace {

using testing::as_f32;
using testing::random_matrix;

QuantTensor two_levels(const Tensor& x) {
  return quantize_nvfp4(x, nvfp4_global_scale(amax(x, Granularity::tensor)));
}

// As export/schemes/quantized_weight.h packs it.
PackedMatrix packed_nvfp4(const QuantTensor& w) {
  const std::int64_t rows = w.shape()[0], groups = w.shape()[1] / kNvfp4BlockSize;
  Tensor scales = Tensor::empty({rows, groups}, DType::f32), globals = Tensor::empty({rows, 1}, DType::f32);
  const float global = w.global_scale().data<float>()[0];
  const auto* codes = static_cast<const std::uint8_t*>(w.scales().raw_data());
  for (std::int64_t i = 0; i < scales.numel(); ++i) scales.data<float>()[i] = E4m3::decode(codes[i]) * global;
  std::fill_n(globals.data<float>(), rows, global);
  return {kNvfp4BlockSize, w.payload(), scales, {}, globals};
}

TEST(Nvfp4Weight, PartsOfAFusedWeightKeepTheirScales) {
  const QuantTensor q = two_levels(random_matrix(48, 96, 1, 0.1f)), k = two_levels(random_matrix(16, 96, 2, 3.0f));
  const PackedMatrix fused = concatenate_rows(std::array{packed_nvfp4(q), packed_nvfp4(k)});
  ASSERT_TRUE(Nvfp4Weight::fits(fused));
  const Nvfp4Weight weight(fused);
  ASSERT_EQ(weight.parts().size(), 2u);
  for (const auto& [ours, original] : {std::pair{weight.parts()[0], q}, {weight.parts()[1], k}}) {
    ASSERT_EQ(ours.shape(), original.shape());
    testing::expect_same_values(dequantize(ours, DType::f32), dequantize(original, DType::f32), "weight");
  }
  EXPECT_EQ(weight.parts()[0].payload().raw_data(), fused.codes().raw_data());

  for (const DType dtype : {DType::f32, DType::bf16}) {
    const QuantTensor x = two_levels(random_matrix(33, 96, 3));
    const Tensor y = Tensor::empty({33, 64}, dtype), expected = Tensor::empty({33, 64}, DType::f32);
    weight.multiply(x, y);
    packed_linear({.x = dequantize(x, DType::f32), .weight = fused, .y = expected, .bias = {}});
    EXPECT_LT(quench::testing::distance(as_f32(y), expected), dtype == DType::f32 ? 1e-6 : 3e-3);
  }
}

TEST(Nvfp4Weight, OtherWeightsDoNotFit) {
  const QuantTensor w = two_levels(random_matrix(16, 64, 4));
  const PackedMatrix with = packed_nvfp4(w);
  EXPECT_FALSE(Nvfp4Weight::fits({}));
  EXPECT_FALSE(Nvfp4Weight::fits({kNvfp4BlockSize, with.codes(), with.scales()}));
  EXPECT_FALSE(Nvfp4Weight::fits({32, with.codes(), Tensor::zeros({16, 2}, DType::f32), {}, with.global_scales()}));
  // A scale that is no e4m3 value under its global scale.
  const PackedMatrix other{kNvfp4BlockSize, with.codes(), with.scales().clone(), {}, with.global_scales()};
  other.scales().data<float>()[5] *= 1.01f;
  EXPECT_FALSE(Nvfp4Weight(other).defined());
}

TEST(Nvfp4Weight, PackedMatricesCarryGlobalScales) {
  const PackedMatrix a = packed_nvfp4(two_levels(random_matrix(16, 64, 5)));
  EXPECT_EQ(a.narrow_rows(4, 8).global_scales().shape(), (Shape{8, 1}));
  EXPECT_EQ(a.to(Device{}).global_scales().shape(), (Shape{16, 1}));
  EXPECT_FALSE(a.same_form({kNvfp4BlockSize, a.codes(), a.scales()}));
}

}  // namespace
}  // namespace quench::recipes
