#include "tests/core/ops/golden_file.h"
#include "tests/core/ops/optimizer/low_bit_adamw_cases.h"
#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

class CudaLowBitAdamW : public ::testing::TestWithParam<MomentFormat> {
 protected:
  static LowBitCase on_device(const LowBitCase& test) {
    return test.map([](const Tensor& x) { return testing::on_gpu(x); });
  }
  static void expect_equal(const LowBitAdamWTensor& gpu, const LowBitAdamWTensor& cpu) {
    EXPECT_TRUE(same_bytes(on_cpu(gpu.param), cpu.param));
    if (cpu.master.defined()) {
      EXPECT_TRUE(same_bytes(on_cpu(gpu.master), cpu.master));
    }
    EXPECT_TRUE(same_bytes(on_cpu(gpu.exp_avg.codes), cpu.exp_avg.codes));
    EXPECT_TRUE(same_bytes(on_cpu(gpu.exp_avg.scales), cpu.exp_avg.scales));
    EXPECT_TRUE(same_bytes(on_cpu(gpu.exp_avg_sq.codes), cpu.exp_avg_sq.codes));
    EXPECT_TRUE(same_bytes(on_cpu(gpu.exp_avg_sq.scales), cpu.exp_avg_sq.scales));
  }
};

TEST_P(CudaLowBitAdamW, StepsGiveTheBitsOfTheCpu) {
  Generator random(1);
  for (const auto& [param, grad, master] :
       {std::tuple{DType::f32, DType::f32, false}, std::tuple{DType::f32, DType::bf16, false},
        std::tuple{DType::bf16, DType::bf16, false}, std::tuple{DType::bf16, DType::f32, true},
        std::tuple{DType::bf16, DType::bf16, true}})
    for (const bool stochastic : {false, true}) {
      std::vector<LowBitAdamWTensor> cpu, gpu;
      std::vector<LowBitCase> kept;
      for (const Shape& shape : {Shape{1, 256}, Shape{33, 512}, Shape{300, 768}}) {
        const LowBitCase test(random, shape, GetParam(), param, grad, master);
        const LowBitCase there = on_device(test);
        cpu.push_back(test.tensor);
        gpu.push_back(there.tensor);
      }
      cpu[1].element_offset = gpu[1].element_offset = 512 * 7;
      Tensor scale = Tensor::empty({1}, DType::f32);
      scale.data<float>()[0] = 0.375f;
      const Tensor gpu_scale = testing::on_gpu(scale);
      for (int step = 1; step <= 3; ++step) {
        AdamWArgs args{
            .lr = 1e-2, .beta2 = 0.95, .step = step, .grad_scale = scale, .stochastic_rounding = stochastic, .seed = 4};
        low_bit_adamw({.tensors = cpu, .format = GetParam(), .adamw = args});
        args.grad_scale = gpu_scale;
        low_bit_adamw({.tensors = gpu, .format = GetParam(), .adamw = args});
      }
      for (std::size_t i = 0; i < cpu.size(); ++i) {
        SCOPED_TRACE(fmt::format("{}, {}, master {}, stochastic {}", cpu[i].param.describe(), to_string(grad), master,
                                 stochastic));
        expect_equal(gpu[i], cpu[i]);
      }
    }
}

TEST_P(CudaLowBitAdamW, ANonFiniteScaleChangesNothing) {
  Generator random(2);
  const LowBitCase test(random, {5, 256}, GetParam(), DType::bf16, DType::bf16, true), there = on_device(test);
  Tensor scale = Tensor::empty({1}, DType::f32);
  scale.data<float>()[0] = NAN;
  low_bit_adamw(
      {.tensors = {&there.tensor, 1}, .format = GetParam(), .adamw = {.lr = 1, .grad_scale = testing::on_gpu(scale)}});
  expect_equal(there.tensor, test.tensor);
}

TEST_P(CudaLowBitAdamW, AmaxMatchesStoredParameter) {
  Generator random(3);
  LowBitCase test(random, {5, 256}, GetParam(), DType::bf16, DType::bf16, false), there = on_device(test);
  there.tensor.amax = Tensor::zeros({}, DType::f32, kGpu);
  low_bit_adamw({.tensors = {&there.tensor, 1}, .format = GetParam(), .adamw = {.lr = 1e-2}});
  float most = 0;
  for (const double x : values(on_cpu(there.tensor.param))) most = std::max(most, static_cast<float>(std::abs(x)));
  EXPECT_EQ(on_cpu(there.tensor.amax).data<float>()[0], most);
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaLowBitAdamW, ::testing::ValuesIn(kMomentFormats),
                         [](const auto& format) { return moment_format_name(format); });

}  // namespace
}  // namespace quench::testing
