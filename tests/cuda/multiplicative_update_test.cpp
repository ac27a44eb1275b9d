#include "core/ops/optimizer/multiplicative_update.h"

#include "tests/core/ops/golden_file.h"
#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

TEST(CudaMultiplicativeUpdate, GivesTheBitsOfTheCpu) {
  Generator random(1);
  for (const DType param : {DType::f32, DType::bf16})
    for (const bool stochastic : {false, true})
      for (const bool master : {false, true}) {
        if (master && param == DType::f32) continue;
        std::vector<MultiplicativeUpdateTensor> cpu, gpu;
        for (const std::int64_t n : {1, 7, 2053, 40000}) {
          MultiplicativeUpdateTensor t{.param = random.normal({n}, param), .relative = random.normal({n}, DType::f32)};
          for (std::int64_t i = 0; i < n; ++i) set_element(t.param, i, std::exp(get_element(t.param, i)));
          if (n > 1) set_element(t.relative, n / 2, 1e38), set_element(t.relative, n - 1, -1e38);
          if (n > 2000) set_element(t.relative, 3, std::nan(""));
          if (master) t.master = Tensor::empty({n}, DType::f32);
          for (std::int64_t i = 0; master && i < n; ++i) set_element(t.master, i, get_element(t.param, i));
          t.element_offset = n == 2053 ? 3 : 8;
          cpu.push_back(t);
          for (Tensor* x : {&t.param, &t.relative, &t.master})
            if (x->defined()) *x = on_gpu(*x);
          gpu.push_back(t);
        }
        for (int step = 1; step <= 3; ++step) {
          MultiplicativeUpdateArgs args{.tensors = cpu, .step = step, .stochastic_rounding = stochastic, .seed = 3};
          multiplicative_update(args);
          args.tensors = gpu;
          multiplicative_update(args);
        }
        for (std::size_t i = 0; i < cpu.size(); ++i) {
          const Tensor found = on_cpu(gpu[i].param);
          for (std::int64_t e = 0; e < found.numel(); ++e) {
            const double x = get_element(found, e), expected = get_element(cpu[i].param, e);
            EXPECT_TRUE(x == expected || (std::isnan(x) && std::isnan(expected))) << e;
          }
        }
      }
}

}  // namespace
}  // namespace quench::testing
