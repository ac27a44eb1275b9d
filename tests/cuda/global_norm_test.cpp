#include "core/ops/global_norm.h"

#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

double squared(const std::vector<Tensor>& tensors, Device device) {
  const Tensor result = Tensor::empty({1}, DType::f64, device);
  squared_norm({.tensors = tensors, .result = result});
  return *on_cpu(result).data<double>();
}

double on_both(const std::vector<Tensor>& tensors, double* gpu) {
  std::vector<Tensor> copies;
  for (const Tensor& t : tensors) copies.push_back(on_gpu(t));
  *gpu = squared(copies, kGpu);
  const Tensor result = Tensor::empty({1}, DType::f64);
  squared_norm({.tensors = tensors, .result = result});
  return *result.data<double>();
}

TEST(CudaSquaredNorm, MatchesTheCpuForAnyListOfTensors) {
  Generator random(1);
  std::vector<Tensor> tensors;
  double gpu = -1.0;
  EXPECT_EQ(on_both(tensors, &gpu), 0.0);
  EXPECT_EQ(gpu, 0.0);
  for (const std::int64_t n : {0, 1, 7, 8, 65535, 65536, 65537, 300001})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      tensors.push_back(random.normal({n}, dtype));
      const double expected = on_both(tensors, &gpu);
      EXPECT_NEAR(gpu, expected, 1e-13 * expected) << n;
      const double alone = on_both({tensors.back()}, &gpu);
      EXPECT_NEAR(gpu, alone, 1e-13 * alone) << n;
    }
}

TEST(CudaSquaredNorm, ThousandsOfTensors) {
  Generator random(2);
  std::vector<Tensor> tensors;
  for (int i = 0; i < 2500; ++i)
    tensors.push_back(random.normal({random.between(0, 40)}, random.coin() ? DType::f32 : DType::bf16));
  double gpu = -1.0;
  const double expected = on_both(tensors, &gpu);
  EXPECT_NEAR(gpu, expected, 1e-13 * expected);
}

TEST(CudaSquaredNorm, BitsDependNeitherOnTheRunNorOnAddresses) {
  Generator random(3);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor aligned = random.normal({200003}, dtype), whole = Tensor::empty({200010}, dtype);
    std::vector<Tensor> lists{on_gpu(aligned)};
    for (const std::int64_t shift : {1, 2, 7}) {
      const Tensor shifted = whole.narrow(0, shift, 200003);
      for (std::int64_t i = 0; i < 200003; ++i) set_element(shifted, i, get_element(aligned, i));
      lists.push_back(on_gpu(shifted));
    }
    const double first = squared({lists[0]}, kGpu);
    for (const Tensor& t : lists)
      for (int run = 0; run < 3; ++run) EXPECT_EQ(squared({t}, kGpu), first);
  }
}

TEST(CudaSquaredNorm, LargeValuesAndNonFiniteOnes) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Tensor x = Tensor::empty({100000}, dtype);
    fill(x, 1e30);
    double gpu = 0;
    const double expected = on_both({x}, &gpu);
    EXPECT_NEAR(gpu, expected, 1e-13 * expected);
    set_element(x, 99999, -INFINITY);
    on_both({x}, &gpu);
    EXPECT_EQ(gpu, INFINITY);
    set_element(x, 3, NAN);
    on_both({x}, &gpu);
    EXPECT_TRUE(std::isnan(gpu));
  }
}

TEST(CudaClipScale, MatchesTheCpu) {
  for (const double square :
       {0.0, 0.25, 1.0, 16.0, 3.7e9, 1e76, 1e100, static_cast<double>(INFINITY), static_cast<double>(NAN)})
    for (const float max_norm : {1.0f, 0.0f, -1.0f, 0.37f}) {
      const Tensor squares = Tensor::from_values<double>({1}, std::array{square});
      const Tensor norm = Tensor::empty({1}, DType::f32), scale = Tensor::empty({1}, DType::f32);
      const Tensor gpu_norm = Tensor::empty({1}, DType::f32, kGpu), gpu_scale = Tensor::empty({1}, DType::f32, kGpu);
      clip_scale({squares, max_norm, norm, scale});
      clip_scale({on_gpu(squares), max_norm, gpu_norm, gpu_scale});
      EXPECT_TRUE(close(on_cpu(gpu_norm), values(norm), 0, 0)) << square;
      EXPECT_TRUE(close(on_cpu(gpu_scale), values(scale), 0, 0)) << square << " " << max_norm;
    }
}

}  // namespace
}  // namespace quench::testing
