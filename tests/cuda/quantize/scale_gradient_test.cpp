#include "core/ops/quantize/scale_gradient.h"

#include "core/ops/elementwise.h"
#include "tests/cuda/cuda_testing.h"

namespace quench {
namespace {

using namespace testing;

constexpr std::pair<std::int64_t, IntMapping> kCases[] = {
    {0, IntMapping::symmetric},  {3, IntMapping::symmetric},  {8, IntMapping::symmetric},  {12, IntMapping::symmetric},
    {24, IntMapping::symmetric}, {32, IntMapping::symmetric}, {64, IntMapping::symmetric}, {96, IntMapping::symmetric},
    {0, IntMapping::binary},     {32, IntMapping::binary},    {12, IntMapping::ternary},   {64, IntMapping::ternary},
    {3, IntMapping::stretched},  {32, IntMapping::stretched}, {96, IntMapping::stretched}};

// The lanes of a group sum in another order than the CPU.
TEST(CudaScaleGradient, MatchesCpu) {
  Generator random(1);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [group, mapping] : kCases) {
      const IntQuantOptions options{.bits = 4, .mapping = mapping, .group_size = group};
      const Tensor w = random.normal({37, 192}, dtype),
                   dvalue = random.normal({37, 192}, group == 32 ? DType::bf16 : DType::f32);
      const Tensor scales = int_scales(w, options).scales;
      scale({.x = scales, .factor = 0.7f});  // some are clipped
      const Tensor expected = Tensor::empty(scales.shape(), DType::f32), found = expected.to(kGpu);
      scale_gradient({.w = w, .dvalue = dvalue, .scales = scales, .out = expected, .options = options, .factor = 0.1f});
      scale_gradient({.w = w.to(kGpu),
                      .dvalue = dvalue.to(kGpu),
                      .scales = scales.to(kGpu),
                      .out = found,
                      .options = options,
                      .factor = 0.1f});
      const Tensor back = on_cpu(found);
      for (std::int64_t i = 0; i < expected.numel(); ++i)
        EXPECT_NEAR(back.data<float>()[i], expected.data<float>()[i], 1e-4) << i;
    }
}

}  // namespace
}  // namespace quench
