#include "tests/core/ops/quantize/delayed_scaling_cases.h"

#include "core/ops/quantize/quantize.h"
#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

TEST(CudaDelayedScaling, StepsMatchCpu) {
  Generator random(1);
  for (const std::int64_t operands : {1, 7, 224, 1000})
    for (const std::int64_t steps : {1, 2, 16, 31, 32, 33, 64, 1024})
      for (const int margin : {0, 3}) {
        SCOPED_TRACE(fmt::format("{} operands, {} steps, margin {}", operands, steps, margin));
        const DelayedScalingArgs cpu = delayed_scaling_case(random, operands, steps, margin);
        DelayedScalingArgs gpu = cpu;
        for (Tensor* tensor : {&gpu.recorded, &gpu.history, &gpu.largest, &gpu.scale}) *tensor = on_gpu(*tensor);
        for (int step = 0; step < 3; ++step) {
          const Tensor next = delayed_scaling_case(random, operands, steps, margin).recorded;
          update_delayed_scales(cpu);
          update_delayed_scales(gpu);
          EXPECT_TRUE(same_bits(on_cpu(gpu.history), cpu.history));
          EXPECT_TRUE(same_bits(on_cpu(gpu.scale), cpu.scale));
          EXPECT_TRUE(same_bits(on_cpu(gpu.recorded), cpu.recorded));
          Tensor(cpu.recorded).copy_from(next);
          Tensor(gpu.recorded).copy_from(next);
        }
      }
}

TEST(CudaRaiseAmax, MatchesCpu) {
  Generator random(2);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t count : {1, 9, 4096, 1000003}) {
      const Tensor x = random.normal({count}, dtype), x_gpu = on_gpu(x);
      const Tensor cpu = Tensor::zeros({}, DType::f32);
      for (const float before : {0.0f, 1e-3f, 1e6f}) {
        *cpu.data<float>() = before;
        const Tensor gpu = on_gpu(cpu);
        raise_amax(x, cpu);
        raise_amax(x_gpu, gpu);
        EXPECT_TRUE(same_bits(on_cpu(gpu), cpu)) << count << " from " << before;
      }
      set_element(x, count / 2, std::nan(""));
      const Tensor gpu = on_gpu(cpu);
      raise_amax(on_gpu(x), gpu);
      EXPECT_TRUE(std::isnan(*on_cpu(gpu).data<float>()));
    }
}

TEST(CudaRaiseAmax, CastsRecordTheAmaxOfTheirInput) {
  Generator random(3);
  const Tensor scale = Tensor::zeros({}, DType::f32);
  *scale.data<float>() = 300.0f;  // the largest values saturate
  for (const Shape& shape : {Shape{64, 128}, Shape{33, 47}, Shape{2048, 512}}) {
    const Tensor x = random.normal(shape, DType::bf16);
    const Float8Pair wanted = cast_float8_pair(x, scale, ElementFormat::e4m3);
    const Tensor most = Tensor::zeros({}, DType::f32, kGpu), of_one = Tensor::zeros({}, DType::f32, kGpu);
    const Float8Pair pair = cast_float8_pair(on_gpu(x), on_gpu(scale), ElementFormat::e4m3, {}, most);
    const QuantTensor one = cast_float8(on_gpu(x), on_gpu(scale), ElementFormat::e4m3, Granularity::tensor,
                                        Orientation::natural, {}, of_one);
    const Tensor own = amax(x, Granularity::tensor);
    EXPECT_TRUE(same_bits(on_cpu(most), own));
    EXPECT_TRUE(same_bits(on_cpu(of_one), own));
    EXPECT_TRUE(same_bits(on_cpu(pair.natural.payload()), wanted.natural.payload()));
    EXPECT_TRUE(same_bits(on_cpu(pair.transposed.payload()), wanted.transposed.payload()));
    EXPECT_TRUE(same_bits(on_cpu(one.payload()), wanted.natural.payload()));
  }
}

}  // namespace
}  // namespace quench::testing
