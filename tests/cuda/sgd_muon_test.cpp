#include "core/ops/optimizer/muon.h"
#include "core/ops/optimizer/sgd.h"
#include "core/ops/optimizer/weight_average.h"
#include "tests/core/ops/golden_file.h"
#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

TEST(CudaSgd, GivesTheBitsOfTheCpu) {
  Generator random(1);
  for (const double momentum : {0.0, 0.9})
    for (const DType param : {DType::f32, DType::bf16})
      for (const DType state : {DType::f32, DType::bf16})
        for (const bool stochastic : {false, true})
          for (const bool master : {false, true}) {
            if (master && param == DType::f32) continue;
            std::vector<SgdTensor> cpu, gpu;
            for (const std::int64_t n : {1, 7, 2053, 40000}) {
              SgdTensor t{.param = random.normal({n}, param), .grad = random.normal({n}, param), .weight_decay = 0.1};
              if (momentum > 0) t.momentum = random.normal({n}, state);
              if (master) t.master = random.normal({n}, DType::f32);
              t.element_offset = n == 2053 ? 3 : 8;
              cpu.push_back(t);
              for (Tensor* x : {&t.param, &t.grad, &t.momentum, &t.master})
                if (x->defined()) *x = on_gpu(*x);
              gpu.push_back(t);
            }
            for (int step = 1; step <= 2; ++step) {
              SgdArgs args{.tensors = cpu,
                           .lr = 1e-2,
                           .momentum = momentum,
                           .nesterov = true,
                           .step = step,
                           .stochastic_rounding = stochastic,
                           .seed = 3};
              sgd(args);
              args.tensors = gpu;
              sgd(args);
            }
            for (std::size_t i = 0; i < cpu.size(); ++i) {
              EXPECT_TRUE(same_bytes(on_cpu(gpu[i].param), cpu[i].param));
              if (momentum > 0) {
                EXPECT_TRUE(same_bytes(on_cpu(gpu[i].momentum), cpu[i].momentum));
              }
              if (master) {
                EXPECT_TRUE(same_bytes(on_cpu(gpu[i].master), cpu[i].master));
              }
            }
          }
}

TEST(CudaMuon, NormalizesGramMatricesAsTheCpu) {
  Generator random(4);
  for (const std::int64_t n : {1, 9, 64, 300}) {
    const Tensor gram = random.normal({3, n, n}, DType::bf16), inverse = Tensor::empty({3}, DType::f32);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t m = 0; m < 3; ++m) set_element(gram, m * n * n + i * (n + 1), static_cast<double>(m));
    const Tensor gpu = on_gpu(gram), gpu_inverse = on_gpu(inverse);
    normalize_gram({gram, inverse});
    normalize_gram({gpu, gpu_inverse});
    EXPECT_TRUE(close(on_cpu(gpu_inverse), values(inverse), 1e-6, 0));
    EXPECT_TRUE(close(on_cpu(gpu), values(gram), 0x1.02p-8, 0));
  }
}

TEST(CudaMuon, MomentumAndStepGiveTheBitsOfTheCpu) {
  Generator random(2);
  for (const bool master : {false, true})
    for (const Shape& shape : {Shape{3, 5}, Shape{64, 100}}) {
      const Tensor grad = random.normal(shape, DType::bf16), momentum = random.normal(shape, DType::f32),
                   update = Tensor::empty(shape, DType::bf16), param = random.normal(shape, DType::bf16);
      const Tensor weights = master ? random.normal(shape, DType::f32) : Tensor();
      const Tensor gpu_momentum = on_gpu(momentum), gpu_update = on_gpu(update), gpu_param = on_gpu(param),
                   gpu_weights = master ? on_gpu(weights) : Tensor();
      muon_momentum({grad, momentum, update});
      muon_momentum({on_gpu(grad), gpu_momentum, gpu_update});
      EXPECT_TRUE(same_bytes(on_cpu(gpu_momentum), momentum));
      EXPECT_TRUE(same_bytes(on_cpu(gpu_update), update));
      MuonApplyArgs args{.param = param,
                         .master = weights,
                         .update = update,
                         .decay = 0.99f,
                         .step_size = -0.02f,
                         .stochastic_rounding = true,
                         .seed = 5,
                         .random_stream = 6,
                         .step = 7,
                         .element_offset = 16};
      muon_apply(args);
      args.param = gpu_param;
      args.master = gpu_weights;
      args.update = gpu_update;
      muon_apply(args);
      EXPECT_TRUE(same_bytes(on_cpu(gpu_param), param));
      if (master) {
        EXPECT_TRUE(same_bytes(on_cpu(gpu_weights), weights));
      }
    }
}

TEST(CudaAverageWeights, GivesTheBitsOfTheCpu) {
  Generator random(1);
  for (const DType param : {DType::f32, DType::bf16})
    for (const DType average : {DType::f32, DType::bf16})
      for (const std::int64_t offset : {0, 3, 8}) {
        std::vector<AveragedTensor> cpu, gpu;
        for (const std::int64_t n : {1, 7, 2053, 40000}) {
          AveragedTensor t{.param = random.normal({n}, param),
                           .average = random.normal({n}, average),
                           .random_stream = static_cast<std::uint64_t>(n),
                           .element_offset = offset};
          cpu.push_back(t);
          t.param = on_gpu(t.param);
          t.average = on_gpu(t.average);
          gpu.push_back(t);
        }
        for (int step = 1; step <= 3; ++step)
          for (const std::vector<AveragedTensor>* tensors : {&cpu, &gpu})
            average_weights({.tensors = *tensors, .decay = 0.999, .step = step, .seed = 4});
        for (std::size_t i = 0; i < cpu.size(); ++i)
          EXPECT_TRUE(same_bytes(on_cpu(gpu[i].average), cpu[i].average))
              << to_string(param) << " " << to_string(average) << " " << cpu[i].param.numel() << " at " << offset;
      }
}

}  // namespace
}  // namespace quench::testing
